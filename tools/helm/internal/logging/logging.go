// Package logging writes JSON lines and folds the SDK's own output into them, at debug level and without content.
package logging

import (
	"context"
	"io"
	"log"
	"log/slog"

	"k8s.io/klog/v2"
)

// New makes the process's logger and takes over the loggers that libraries use on their own.
func New(out io.Writer, level slog.Leveler) *slog.Logger {
	logger := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	quiet := slog.New(Quiet(logger.Handler()))
	slog.SetDefault(quiet)
	// After SetDefault, which redirects it: Helm's warnings about values go here, and they print the values.
	log.SetOutput(io.Discard)
	klog.SetSlogLogger(quiet)
	return logger
}

// identity are the attributes of the SDK's records that may be logged. Others could hold values or templates.
var identity = map[string]bool{
	"name": true, "namespace": true, "kind": true, "gvk": true, "key": true, "version": true, "revision": true,
	"resources": true, "count": true, "resourceCount": true, "timeout": true, "expectedStatus": true,
	"actualStatus": true, "currentVersion": true, "targetVersion": true, "status": true, "operation": true,
	"cluster": true, "release": true,
}

type quiet struct{ inner slog.Handler }

// Quiet lowers every record to debug level and keeps only attributes that name things.
func Quiet(inner slog.Handler) slog.Handler { return &quiet{inner: inner} }

func (q *quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.inner.Enabled(ctx, slog.LevelDebug)
}

func (q *quiet) Handle(ctx context.Context, record slog.Record) error {
	lowered := slog.NewRecord(record.Time, slog.LevelDebug, record.Message, 0)
	record.Attrs(func(attr slog.Attr) bool {
		if identity[attr.Key] {
			lowered.AddAttrs(slog.Attr{Key: "helm." + attr.Key, Value: attr.Value})
		}
		return true
	})
	return q.inner.Handle(ctx, lowered)
}

func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	var kept []slog.Attr
	for _, attr := range attrs {
		if identity[attr.Key] {
			kept = append(kept, slog.Attr{Key: "helm." + attr.Key, Value: attr.Value})
		}
	}
	return &quiet{inner: q.inner.WithAttrs(kept)}
}

func (q *quiet) WithGroup(string) slog.Handler { return q }
