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
	// span is what the queries look back at, and step how often it was scraped.
	span = 26 * time.Hour
	step = time.Minute
)

// engine asks what Prometheus would ask, of series as Prometheus would store them.
type engine struct {
	dir    string
	db     *tsdb.DB
	now    time.Time
	engine *promql.Engine
	// known are the labels of every metric.
	known map[string]map[string]bool
}

// newEngine stores series as if they had been scraped for long: counters have grown evenly, all else has stayed.
func newEngine(all []series) (*engine, error) {
	dir, err := os.MkdirTemp("", "promcheck-")
	if err != nil {
		return nil, err
	}
	db, err := tsdb.Open(dir, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	e := &engine{dir: dir, db: db, now: time.Now(), known: map[string]map[string]bool{}}
	e.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute})
	for _, one := range all {
		name := one.labels.Get(labels.MetricName)
		if e.known[name] == nil {
			e.known[name] = map[string]bool{}
		}
		one.labels.Range(func(label labels.Label) { e.known[name][label.Name] = true })
	}
	return e, e.store(all)
}

func (e *engine) store(all []series) error {
	steps := int64(span / step)
	for number := range steps + 1 {
		at := e.now.Add(-span + time.Duration(number)*step).UnixMilli()
		appender := e.db.Appender(context.Background())
		for _, one := range all {
			value := one.value
			if one.counter {
				value *= float64(number) / float64(steps)
			}
			if _, err := appender.Append(0, one.labels, at, value); err != nil {
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

func (e *engine) check(query query) error {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query.text)
	if err != nil {
		return err
	}
	if err := e.checkNames(expression); err != nil {
		return err
	}
	asked, err := e.engine.NewInstantQuery(context.Background(), e.db, nil, query.text, e.now)
	if err != nil {
		return err
	}
	defer asked.Close()
	answer := asked.Exec(context.Background())
	if answer.Err != nil {
		return answer.Err
	}
	found, err := answer.Vector()
	if err != nil {
		return err
	}
	switch {
	case query.quiet && len(found) > 0:
		return fmt.Errorf("it fires although all is well: %v", found)
	case !query.quiet && len(found) == 0:
		return errors.New("it shows nothing")
	}
	return nil
}

// checkNames finds metrics and labels that nobody serves.
func (e *engine) checkNames(expression parser.Expr) error {
	var problems []error
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := e.known[selector.Name]
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
