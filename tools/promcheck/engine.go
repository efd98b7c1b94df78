package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// span is the time range of the stored series, and step their scrape interval.
	span = 26 * time.Hour
	step = time.Minute
)

// engine evaluates queries with the query engine and the storage of Prometheus.
type engine struct {
	dir    string
	db     *tsdb.DB
	now    time.Time
	engine *promql.Engine
	// labels contains the label names of every metric.
	labels map[string]map[string]bool
}

// newEngine stores series as if they had been scraped over the whole span. Counters increase linearly from zero, other
// metrics are constant.
func newEngine(all []series) (*engine, error) {
	dir, err := os.MkdirTemp("", "promcheck-")
	if err != nil {
		return nil, err
	}
	db, err := tsdb.Open(dir, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	e := &engine{dir: dir, db: db, now: time.Now(), labels: map[string]map[string]bool{}}
	e.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute})
	for _, one := range all {
		name := one.labels.Get(labels.MetricName)
		if e.labels[name] == nil {
			e.labels[name] = map[string]bool{}
		}
		one.labels.Range(func(label labels.Label) { e.labels[name][label.Name] = true })
	}
	return e, e.store(all)
}

func (e *engine) store(all []series) error {
	steps := int64(span / step)
	for number := range steps + 1 {
		timestamp := e.now.Add(-span + time.Duration(number)*step).UnixMilli()
		appender := e.db.Appender(context.Background())
		for _, one := range all {
			value := one.value
			if one.counter {
				value *= float64(number) / float64(steps)
			}
			if _, err := appender.Append(0, one.labels, timestamp, value); err != nil {
				return err
			}
		}
		if err := appender.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) close() {
	_ = e.db.Close()
	_ = os.RemoveAll(e.dir)
}

// check returns an error if a query names an unknown metric or label, or does not have the expected result.
func (e *engine) check(query query) error {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query.text)
	if err != nil {
		return err
	}
	if err := e.checkNames(expression); err != nil {
		return err
	}
	instant, err := e.engine.NewInstantQuery(context.Background(), e.db, nil, query.text, e.now)
	if err != nil {
		return err
	}
	defer instant.Close()
	result := instant.Exec(context.Background())
	if result.Err != nil {
		return result.Err
	}
	vector, err := result.Vector()
	if err != nil {
		return err
	}
	switch {
	case query.mustBeEmpty && len(vector) > 0:
		return fmt.Errorf("the alert fires unexpectedly: %v", vector)
	case !query.mustBeEmpty && len(vector) == 0:
		return errors.New("the result is empty")
	}
	return nil
}

// checkNames returns an error for each metric and label that does not exist.
func (e *engine) checkNames(expression parser.Expr) error {
	var problems []error
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := e.labels[selector.Name]
		if !ok {
			problems = append(problems, fmt.Errorf("there is no metric %q", selector.Name))
			return nil
		}
		for _, matcher := range selector.LabelMatchers {
			if !known[matcher.Name] {
				problems = append(problems, fmt.Errorf("%s has no label %q", selector.Name, matcher.Name))
			}
		}
		return nil
	})
	return errors.Join(problems...)
}
