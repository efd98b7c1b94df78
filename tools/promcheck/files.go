package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"sigs.k8s.io/yaml"
)

// query is a query of a panel or an alert.
type query struct {
	name string
	text string
	// mustBeEmpty is set for alerts that must not fire.
	mustBeEmpty bool
}

// series is a scraped series with its value.
type series struct {
	labels  labels.Labels
	value   float64
	counter bool
}

func readSeries(file string) ([]series, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parser := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	var all []series
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("invalid OpenMetrics text: %w", err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		one := series{}
		_, _, one.value = parser.Series()
		parser.Labels(&one.labels)
		name := one.labels.Get(labels.MetricName)
		one.counter = hasAnySuffix(name, "_total", "_bucket", "_count", "_sum")
		all = append(all, one)
	}
}

func hasAnySuffix(name string, suffixes ...string) bool {
	for _, suffix := range suffixes {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func readDashboard(file string) ([]query, error) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, err
	}
	var queries []query
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			text := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			queries = append(queries, query{name: panel.Title, text: text})
		}
	}
	if len(queries) == 0 {
		return nil, fmt.Errorf("%s has no queries", file)
	}
	return queries, nil
}

func readRules(file, firing string) ([]query, error) {
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string
					Expr        string
					Annotations map[string]string
				}
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		return nil, err
	}
	var queries []query
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			for _, annotation := range []string{"summary", "description", "runbook_url"} {
				if rule.Annotations[annotation] == "" {
					return nil, fmt.Errorf("alert %s has no %s", rule.Alert, annotation)
				}
			}
			queries = append(queries, query{name: rule.Alert, text: rule.Expr, mustBeEmpty: rule.Alert != firing})
		}
	}
	if len(queries) == 0 {
		return nil, fmt.Errorf("%s has no rules", file)
	}
	return queries, nil
}
