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

// rolledBackLabel is the label with the digest of the inputs that a rollback has rolled back, in the same form, on the Secret
// of the revision that the rollback created.
const rolledBackLabel = "chandler.dev/rolled-back"

// inputLabels returns the labels of a new revision. The value "null" makes Helm remove the label of the last revision.
func inputLabels(digest string, revision int) (map[string]string, error) {
	if digest == "" {
		if revision == 1 {
			return nil, nil
		}
		return map[string]string{inputLabel: "null"}, nil
	}
	value, err := digestLabel(digest, revision)
	if err != nil {
		return nil, err
	}
	return map[string]string{inputLabel: value}, nil
}

// rollbackLabels returns the labels of the revision that a rollback creates. An empty value removes the label, which Helm
// copies from the revision that is restored.
func rollbackLabels(spec RollbackSpec, revision int) (map[string]string, error) {
	labels := map[string]string{}
	for label, digest := range map[string]string{inputLabel: spec.InputDigest, rolledBackLabel: spec.RolledBackDigest} {
		labels[label] = ""
		if digest == "" {
			continue
		}
		value, err := digestLabel(digest, revision)
		if err != nil {
			return nil, err
		}
		labels[label] = value
	}
	return labels, nil
}

// digestLabel returns the value of a label with the digest of the inputs of a revision.
func digestLabel(digest string, revision int) (string, error) {
	value := digest + "." + strconv.Itoa(revision)
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return "", failure.New(failure.Internal, "the input digest is not a valid label value: %s", strings.Join(problems, "; "))
	}
	return value, nil
}

// inputDigest returns the input digest of a revision, or an empty string if Chandler did not create it.
func inputDigest(labels map[string]string, revision int) string {
	return readDigest(labels[inputLabel], revision)
}

// rolledBackDigest returns the digest of the inputs that the rollback which created a revision has rolled back, or an empty
// string.
func rolledBackDigest(labels map[string]string, revision int) string {
	return readDigest(labels[rolledBackLabel], revision)
}

// readDigest returns the digest in a label if it is that of the revision.
func readDigest(value string, revision int) string {
	at := strings.LastIndexByte(value, '.')
	if at < 0 || value[at+1:] != strconv.Itoa(revision) {
		return ""
	}
	return value[:at]
}
