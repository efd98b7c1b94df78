package release

import (
	"maps"
	"strings"
	"testing"
)

func TestInputDigest(t *testing.T) {
	cases := map[string]struct {
		label    string
		revision int
		want     string
	}{
		"same revision":          {"abc.3", 3, "abc"},
		"copied by an upgrade":   {"abc.3", 4, ""},
		"copied by a rollback":   {"abc.1", 3, ""},
		"dots in the digest":     {"a.b.12", 12, "a.b"},
		"no label":               {"", 1, ""},
		"no revision":            {"abc", 1, ""},
		"padded number":          {"abc.03", 3, ""},
		"a prefix of the number": {"abc.1", 11, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := inputDigest(map[string]string{inputLabel: c.label}, c.revision); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInputLabels(t *testing.T) {
	cases := map[string]struct {
		digest   string
		revision int
		want     map[string]string
		fails    bool
	}{
		"first":                  {"abc", 1, map[string]string{inputLabel: "abc.1"}, false},
		"later":                  {"abc", 12, map[string]string{inputLabel: "abc.12"}, false},
		"none, first":            {"", 1, nil, false},
		"none removes the label": {"", 2, map[string]string{inputLabel: "null"}, false},
		"longest":                {strings.Repeat("a", 50), 123456, map[string]string{inputLabel: strings.Repeat("a", 50) + ".123456"}, false},
		"too long":               {strings.Repeat("a", 64), 1, nil, true},
		"invalid label value":    {"sha256:abc", 1, nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := inputLabels(c.digest, c.revision)
			if (err != nil) != c.fails || !maps.Equal(got, c.want) {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
}
