package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const metrics = `# HELP jobs Jobs.
# TYPE jobs counter
jobs_total{kind="install"} 26
# HELP broken Broken.
# TYPE broken gauge
broken{state="bad"} 1
# HELP build Build.
# TYPE build info
build_info{version="1"} 1
# EOF
`

func TestCheckRejectsUnknownNamesAndUnexpectedResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics")
	if err := os.WriteFile(file, []byte(metrics), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readSeries(file)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %v, %v", all, err)
	}
	engine, err := newEngine(all)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.close()
	rows := []struct {
		query query
		want  string
	}{
		{query{text: "sum(increase(jobs_total[1h]))"}, ""},
		{query{text: "count by (version) (build_info)"}, ""},
		{query{text: `broken{state="good"}`}, "the result is empty"},
		{query{text: "jobs"}, `there is no metric "jobs"`},
		{query{text: `jobs_total{cluster="a"}`}, `jobs_total has no label "cluster"`},
		{query{text: "sum("}, "parse error"},
		{query{text: "increase(jobs_total[1h]) > 2", mustBeEmpty: true}, ""},
		{query{text: "increase(jobs_total[1d]) > 2", mustBeEmpty: true}, "the alert fires"},
		{query{text: `broken{state="bad"} > 0`, mustBeEmpty: true}, "the alert fires"},
	}
	for _, row := range rows {
		err := engine.check(row.query)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.query.text, err, row.want)
		}
	}
}
