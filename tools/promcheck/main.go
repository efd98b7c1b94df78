// promcheck evaluates the queries of a dashboard and of alert rules on scraped metrics.
//
// Every metric and label in a query must exist, every panel must have a result, and only the alert that is given by
// -firing may fire.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	metrics := flag.String("metrics", "", "file with metrics in OpenMetrics format")
	dashboard := flag.String("dashboard", "", "file with a Grafana dashboard")
	rules := flag.String("rules", "", "file with a PrometheusRule")
	firing := flag.String("firing", "", "the alert that must fire; none by default")
	flag.Parse()
	if err := run(*metrics, *dashboard, *rules, *firing); err != nil {
		fmt.Fprintln(os.Stderr, "promcheck:", err)
		os.Exit(1)
	}
}

func run(metrics, dashboard, rules, firing string) error {
	series, err := readSeries(metrics)
	if err != nil {
		return err
	}
	panels, err := readDashboard(dashboard)
	if err != nil {
		return err
	}
	alerts, err := readRules(rules, firing)
	if err != nil {
		return err
	}
	engine, err := newEngine(series)
	if err != nil {
		return err
	}
	defer engine.close()
	var problems []error
	for _, query := range append(panels, alerts...) {
		if err := engine.check(query); err != nil {
			problems = append(problems, fmt.Errorf("%s: `%s`: %w", query.name, query.text, err))
		}
	}
	fmt.Printf("checked %d queries of panels and %d of alerts on %d series\n", len(panels), len(alerts), len(series))
	return errors.Join(problems...)
}
