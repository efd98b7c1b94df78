package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
)

// The manager has its own parser for version ranges. Its tests and this test use the same table.
func TestVersionRanges(t *testing.T) {
	table, err := os.ReadFile("../../../../crates/core/src/resolution/range/helm.tsv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(table), "\n"), "\n")
	_, header, _ := strings.Cut(lines[0], "\t")
	versions := strings.Split(header, " ")
	for _, line := range lines[1:] {
		text, expected, _ := strings.Cut(line, "\t")
		if got := matching(t, text, versions); got != expected {
			t.Errorf("%q: got %q, want %q", text, got, expected)
		}
	}
}

func matching(t *testing.T, text string, versions []string) string {
	t.Helper()
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return "refused"
	}
	var found []string
	for _, version := range versions {
		parsed, err := semver.NewVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if constraint.Check(parsed) {
			found = append(found, version)
		}
	}
	return strings.Join(found, " ")
}
