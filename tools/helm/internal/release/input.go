package release

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"chandler.dev/tools/helm/internal/failure"
)

// inputLabel is on the Secret of every revision that Chandler makes: "<digest>.<revision>". Helm carries labels over
// to later revisions, and so the digest counts only where the number is the revision's own.
const inputLabel = "chandler.dev/input"

// inputLabels are the labels of a new revision. Helm reads "null" as: drop what the last revision had.
func inputLabels(digest string, revision int) (map[string]string, error) {
	if digest == "" {
		if revision == 1 {
			return nil, nil
		}
		return map[string]string{inputLabel: "null"}, nil
	}
	value := digest + "." + strconv.Itoa(revision)
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return nil, failure.New(failure.Internal, "the input digest cannot be a label: %s", strings.Join(problems, "; "))
	}
	return map[string]string{inputLabel: value}, nil
}

// inputDigest reads the label of a revision. Empty: the revision was made by someone else.
func inputDigest(labels map[string]string, revision int) string {
	value := labels[inputLabel]
	at := strings.LastIndexByte(value, '.')
	if at < 0 || value[at+1:] != strconv.Itoa(revision) {
		return ""
	}
	return value[:at]
}
