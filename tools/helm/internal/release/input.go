package release

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"chandler.dev/tools/helm/internal/failure"
)

// inputLabel is the label with the input digest on the Secret of every revision that Chandler creates:
// "<digest>.<revision>". Helm copies labels to later revisions, so the digest is valid only if the number matches the
// revision.
const inputLabel = "chandler.dev/input"

// inputLabels returns the labels of a new revision. The value "null" makes Helm remove the label of the last revision.
func inputLabels(digest string, revision int) (map[string]string, error) {
	if digest == "" {
		if revision == 1 {
			return nil, nil
		}
		return map[string]string{inputLabel: "null"}, nil
	}
	value := digest + "." + strconv.Itoa(revision)
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return nil, failure.New(failure.Internal, "the input digest is not a valid label value: %s", strings.Join(problems, "; "))
	}
	return map[string]string{inputLabel: value}, nil
}

// inputDigest returns the input digest of a revision, or an empty string if Chandler did not create it.
func inputDigest(labels map[string]string, revision int) string {
	value := labels[inputLabel]
	at := strings.LastIndexByte(value, '.')
	if at < 0 || value[at+1:] != strconv.Itoa(revision) {
		return ""
	}
	return value[:at]
}
