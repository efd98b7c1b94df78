package failure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/storage/driver"
)

// HookError reports a hook that was created but did not succeed.
type HookError struct {
	// Name is the hook's display name: "pre-install Job namespace/name".
	Name string
	Err  error
}

func (e *HookError) Error() string { return fmt.Sprintf("hook %s failed: %v", e.Name, e.Err) }

func (e *HookError) Unwrap() error { return e.Err }

// WaitError reports objects that did not reach a state in time.
type WaitError struct {
	// For is the awaited state: "ready", "deleted" or "established".
	For   string
	After time.Duration
	Err   error
}

func (e *WaitError) Error() string { return fmt.Sprintf("not %s after %s: %v", e.For, e.After, e.Err) }

func (e *WaitError) Unwrap() error { return e.Err }

// RenderError reports a package that failed to render with the given values. Nothing was sent to the cluster.
type RenderError struct{ Err error }

func (e *RenderError) Error() string { return e.Err.Error() }

func (e *RenderError) Unwrap() error { return e.Err }

// BuildError reports rendered manifests that could not be parsed as Kubernetes objects.
type BuildError struct{ Err error }

func (e *BuildError) Error() string { return e.Err.Error() }

func (e *BuildError) Unwrap() error { return e.Err }

func fromHookError(err error) *Error {
	hook, ok := errors.AsType[*HookError](err)
	if !ok {
		return nil
	}
	reason := withoutDeadline(hook.Err)
	if reason == "" {
		reason = "it did not finish in time"
	}
	return Wrap(HookFailed, err, "hook %s failed: %s", hook.Name, reason)
}

func fromWaitError(err error) *Error {
	wait, ok := errors.AsType[*WaitError](err)
	if !ok {
		return nil
	}
	reason := withoutDeadline(wait.Err)
	if reason == "" {
		reason = "timed out"
	}
	return Wrap(NotReady, err, "not %s after %s: %s", wait.For, wait.After.Round(time.Second), reason)
}

// withoutDeadline removes the "context deadline exceeded" line; the other lines name the objects that were not ready.
func withoutDeadline(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line != "" && line != context.DeadlineExceeded.Error() {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func fromStorageError(err error) *Error {
	switch {
	case errors.Is(err, driver.ErrReleaseExists):
		return Wrap(Conflict, err, "another client created this revision of the release at the same time")
	case errors.Is(err, driver.ErrNoDeployedReleases), errors.Is(err, driver.ErrReleaseNotFound):
		return Wrap(Conflict, err, "the release no longer exists: %v", err)
	}
	return nil
}

func fromRenderError(err error) *Error {
	render, ok := errors.AsType[*RenderError](err)
	if !ok {
		return nil
	}
	return Wrap(InvalidValues, err, "the package failed to render with these values: %v", render.Err)
}

func fromBuildError(err error) *Error {
	build, ok := errors.AsType[*BuildError](err)
	if !ok {
		return nil
	}
	return Wrap(InvalidPackage, err, "the package rendered an invalid Kubernetes object: %v", build.Err)
}
