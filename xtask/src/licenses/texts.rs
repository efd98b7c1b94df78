//! Recognizes licenses by sentences that only they contain.

use std::collections::BTreeSet;

/// A license, and sentences of it without punctuation. A text that contains all of them has the license.
struct License {
    id: &'static str,
    sentences: &'static [&'static str],
}

const fn license(id: &'static str, sentences: &'static [&'static str]) -> License {
    License { id, sentences }
}

const BSD: &str = "redistribution and use in source and binary forms with or without modification are permitted provided \
                   that the following conditions are met";
/// What the third clause of the BSD license forbids.
const ENDORSEMENT: &str =
    "be used to endorse or promote products derived from this software without specific prior";
/// Part of the notice with which a program refers to a license of GNU.
const GNU_NOTICE: &str = "or at your option any later version";

/// Includes licenses that are not allowed, so that a file with two licenses cannot hide one.
const LICENSES: [License; 22] = [
    license("AGPL-3.0-only", &["gnu affero general public license version 3 19 november 2007"]),
    license("Apache-2.0", &["apache license version 2 0"]),
    license("BSD-2-Clause", &[BSD]),
    license("BSD-3-Clause", &[BSD, ENDORSEMENT]),
    license(
        "BSD-4-Clause",
        &[BSD, "all advertising materials mentioning features or use of this software must display"],
    ),
    license("BSL-1.0", &["boost software license version 1 0"]),
    license("BUSL-1.1", &["business source license 1 1"]),
    license("CC-BY-SA-4.0", &["creative commons attribution sharealike 4 0 international"]),
    license("CC0-1.0", &["creative commons", "cc0 1 0 universal"]),
    license("Commons-Clause", &["commons clause"]),
    license("EPL-2.0", &["eclipse public license v 2 0"]),
    license("Elastic-2.0", &["elastic license 2 0"]),
    license("GPL-2.0-only", &["gnu general public license version 2 june 1991"]),
    license("GPL-3.0-only", &["gnu general public license version 3 29 june 2007"]),
    license("GPL-2.0-or-later", &["under the terms of the gnu", GNU_NOTICE]),
    license(
        "ISC",
        &[
            "permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted",
        ],
    ),
    license("JSON", &["the software shall be used for good not evil"]),
    license("LGPL-2.1-only", &["gnu lesser general public license version 2 1 february 1999"]),
    license("LGPL-3.0-only", &["gnu lesser general public license version 3 29 june 2007"]),
    license(
        "MIT",
        &[
            "permission is hereby granted free of charge to any person obtaining a copy of this software and associated \
             documentation files",
            "the above copyright notice and this permission notice shall be included in all copies",
        ],
    ),
    license("MPL-2.0", &["mozilla public license version 2 0"]),
    license("SSPL-1.0", &["server side public license version 1"]),
];

/// Returns the SPDX identifiers of the licenses that a text contains. A text with the BSD license in both forms has the one
/// with more clauses, which is the stricter one.
pub fn identify(text: &str) -> BTreeSet<&'static str> {
    let text = words(text);
    let contained =
        LICENSES.iter().filter(|license| license.sentences.iter().all(|part| text.contains(part)));
    let mut found: BTreeSet<&'static str> = contained.map(|license| license.id).collect();
    if found.contains("BSD-3-Clause") {
        found.remove("BSD-2-Clause");
    }
    found
}

/// Returns the words of a text in lower case, with one space between them.
fn words(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIT: &str = "The MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this \
                       software and associated documentation files (the \"Software\"), to deal in the Software\n\nThe above \
                       copyright notice and this permission notice shall be included in all\ncopies or substantial portions";
    const BSD_2: &str = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted \
                         provided that the following conditions\nare met:\n * Redistributions of source code";
    const THIRD_CLAUSE: &str = "\n * Neither the name of Google Inc. nor the names of its\ncontributors may be used to endorse \
                                or promote products derived from\nthis software without specific prior written permission.";
    const ADVERTISING: &str = "\n3. All advertising materials mentioning features or use of this software\nmust display the \
                               following acknowledgement:";
    const MPL: &str = "Mozilla Public License Version 2.0\n1.12. \"Secondary License\" means either the GNU General Public \
                       License, Version 2.0, the GNU Lesser General Public License, Version 2.1, the GNU Affero General Public \
                       License, Version 3.0, or any later versions of those licenses.";

    #[test]
    fn licenses_are_recognized_by_their_text() {
        for (text, expected) in [
            ("                Apache License\n          Version 2.0, January 2004\n".to_owned(), vec!["Apache-2.0"]),
            ("Licensed under the Apache License, Version 2.0 (the \"License\")".to_owned(), vec!["Apache-2.0"]),
            (MIT.to_owned(), vec!["MIT"]),
            (BSD_2.to_owned(), vec!["BSD-2-Clause"]),
            (format!("{BSD_2}{THIRD_CLAUSE}"), vec!["BSD-3-Clause"]),
            (format!("{MIT}\n{BSD_2}{THIRD_CLAUSE}"), vec!["BSD-3-Clause", "MIT"]),
            (
                format!("{BSD_2}{ADVERTISING}{THIRD_CLAUSE}"),
                vec!["BSD-3-Clause", "BSD-4-Clause"],
            ),
            (format!("{MIT}\nThe Software shall be used for Good, not Evil."), vec!["JSON", "MIT"]),
            (MPL.to_owned(), vec!["MPL-2.0"]),
            (
                format!("{MIT}\nGNU GENERAL PUBLIC LICENSE\n Version 2, June 1991"),
                vec!["GPL-2.0-only", "MIT"],
            ),
            (
                "redistribute it under the terms of the GNU General Public License, either version 2 of the License, or \
                 (at your option) any later version"
                    .to_owned(),
                vec!["GPL-2.0-or-later"],
            ),
            ("All rights reserved.".to_owned(), vec![]),
            (String::new(), vec![]),
        ] {
            assert_eq!(identify(&text).into_iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
