package failure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/storage/driver"
)

// Hook says that a hook was created and did not succeed.
type Hook struct {
	// Name is what a person calls it: "pre-install Job namespace/name".
	Name string
	Err  error
}

func (e *Hook) Error() string { return fmt.Sprintf("hook %s failed: %v", e.Name, e.Err) }

func (e *Hook) Unwrap() error { return e.Err }

// Wait says that objects did not become ready, or did not go away, in time.
type Wait struct {
	// For is what was waited for: "ready" or "gone".
	For   string
	After time.Duration
	Err   error
}

func (e *Wait) Error() string { return fmt.Sprintf("not %s after %s: %v", e.For, e.After, e.Err) }

func (e *Wait) Unwrap() error { return e.Err }

// Render says that the package did not render with these values: nothing was sent to the cluster.
type Render struct{ Err error }

func (e *Render) Error() string { return e.Err.Error() }

func (e *Render) Unwrap() error { return e.Err }

// Build says that rendered text could not be understood as Kubernetes objects.
type Build struct{ Err error }

func (e *Build) Error() string { return e.Err.Error() }

func (e *Build) Unwrap() error { return e.Err }

func fromHook(err error) *Error {
	hook, ok := errors.AsType[*Hook](err)
	if !ok {
		return nil
	}
	reason := withoutDeadline(hook.Err)
	if reason == "" {
		reason = "it did not finish in time"
	}
	return Wrap(HookFailed, err, "hook %s failed: %s", hook.Name, reason)
}

func fromWait(err error) *Error {
	wait, ok := errors.AsType[*Wait](err)
	if !ok {
		return nil
	}
	reason := withoutDeadline(wait.Err)
	if reason == "" {
		reason = "time ran out"
	}
	return Wrap(NotReady, err, "not %s after %s: %s", wait.For, wait.After.Round(time.Second), reason)
}

// withoutDeadline drops the line that only says the time ran out: the others say what was not ready.
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

func fromStorage(err error) *Error {
	switch {
	case errors.Is(err, driver.ErrReleaseExists):
		return Wrap(Conflict, err, "another writer made this revision of the release at the same time: look at the release again")
	case errors.Is(err, driver.ErrNoDeployedReleases), errors.Is(err, driver.ErrReleaseNotFound):
		return Wrap(Conflict, err, "the release is gone: %v", err)
	}
	return nil
}

func fromRender(err error) *Error {
	render, ok := errors.AsType[*Render](err)
	if !ok {
		return nil
	}
	return Wrap(InvalidValues, err, "the package does not render with these values: %v", render.Err)
}

func fromBuild(err error) *Error {
	build, ok := errors.AsType[*Build](err)
	if !ok {
		return nil
	}
	return Wrap(InvalidPackage, err, "the package renders something that is not a Kubernetes object: %v", build.Err)
}
