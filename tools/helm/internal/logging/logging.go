// Package logging sets up JSON logging and filters the log output of the Helm SDK and of client-go.
package logging

import (
	"context"
	"io"
	"log"
	"log/slog"

	"k8s.io/klog/v2"
)

// New returns the logger of the process and redirects the default loggers of libraries to it.
func New(out io.Writer, level slog.Leveler) *slog.Logger {
	logger := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	library := slog.New(LibraryHandler(logger.Handler()))
	slog.SetDefault(library)
	// Helm logs warnings about values, with the values, through package log. SetDefault redirects log, so this follows
	// it.
	log.SetOutput(io.Discard)
	klog.SetSlogLogger(library)
	return logger
}

// allowedAttributes are the attributes of library records that are logged. Others could contain values or templates.
var allowedAttributes = map[string]bool{
	"name": true, "namespace": true, "kind": true, "gvk": true, "key": true, "version": true, "revision": true,
	"resources": true, "count": true, "resourceCount": true, "timeout": true, "expectedStatus": true,
	"actualStatus": true, "currentVersion": true, "targetVersion": true, "status": true, "operation": true,
	"cluster": true, "release": true,
}

type libraryHandler struct{ inner slog.Handler }

// LibraryHandler returns a handler for the log records of libraries. It logs them at debug level and with the allowed
// attributes only.
func LibraryHandler(inner slog.Handler) slog.Handler { return &libraryHandler{inner: inner} }

func (h *libraryHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.inner.Enabled(ctx, slog.LevelDebug)
}

func (h *libraryHandler) Handle(ctx context.Context, record slog.Record) error {
	lowered := slog.NewRecord(record.Time, slog.LevelDebug, record.Message, 0)
	record.Attrs(func(attr slog.Attr) bool {
		if allowedAttributes[attr.Key] {
			lowered.AddAttrs(slog.Attr{Key: "helm." + attr.Key, Value: attr.Value})
		}
		return true
	})
	return h.inner.Handle(ctx, lowered)
}

func (h *libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var kept []slog.Attr
	for _, attr := range attrs {
		if allowedAttributes[attr.Key] {
			kept = append(kept, slog.Attr{Key: "helm." + attr.Key, Value: attr.Value})
		}
	}
	return &libraryHandler{inner: h.inner.WithAttrs(kept)}
}

func (h *libraryHandler) WithGroup(string) slog.Handler { return h }
