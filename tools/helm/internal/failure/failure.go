// Package failure turns errors into typed failures with a message a person can act on.
//
// Types come first: API status errors, network errors and the phase wrappers of this package. Where the Helm SDK
// leaves only text, the matching lives in text.go and nowhere else.
package failure

import (
	"errors"
	"fmt"
	"strings"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/withhold"
)

// Short names for the categories.
const (
	InvalidPackage = toolv1.FailureCategory_FAILURE_CATEGORY_INVALID_PACKAGE
	InvalidValues  = toolv1.FailureCategory_FAILURE_CATEGORY_INVALID_VALUES
	Conflict       = toolv1.FailureCategory_FAILURE_CATEGORY_CONFLICT
	Unreachable    = toolv1.FailureCategory_FAILURE_CATEGORY_UNREACHABLE
	Unauthorized   = toolv1.FailureCategory_FAILURE_CATEGORY_UNAUTHORIZED
	Forbidden      = toolv1.FailureCategory_FAILURE_CATEGORY_FORBIDDEN
	Timeout        = toolv1.FailureCategory_FAILURE_CATEGORY_TIMEOUT
	HookFailed     = toolv1.FailureCategory_FAILURE_CATEGORY_HOOK_FAILED
	NotReady       = toolv1.FailureCategory_FAILURE_CATEGORY_NOT_READY
	Cancelled      = toolv1.FailureCategory_FAILURE_CATEGORY_CANCELLED
	Rejected       = toolv1.FailureCategory_FAILURE_CATEGORY_REJECTED
	Internal       = toolv1.FailureCategory_FAILURE_CATEGORY_INTERNAL
)

// maxMessage bounds what ends up in a status; the head of an error says most.
const maxMessage = 2048

// Error is an error whose category is known.
type Error struct {
	Category toolv1.FailureCategory
	Message  string
	cause    error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.cause }

// New makes a failure of a known category.
func New(category toolv1.FailureCategory, format string, args ...any) *Error {
	return &Error{Category: category, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives an error its category and message, and keeps the cause.
func Wrap(category toolv1.FailureCategory, cause error, format string, args ...any) *Error {
	return &Error{Category: category, Message: fmt.Sprintf(format, args...), cause: cause}
}

// Proto is the failure to report for an error. Where the words are a package's own or the cluster's, they may repeat the
// texts of the values, which are left out.
func Proto(err error, texts ...string) *toolv1.Failure {
	typed := Classify(err)
	message := typed.Message
	switch typed.Category {
	case InvalidValues, InvalidPackage, Rejected, Internal:
		message = withhold.From(message, texts)
	}
	return &toolv1.Failure{Category: typed.Category, Message: clean(message)}
}

// Classify finds the category of an error.
func Classify(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	for _, classify := range []func(error) *Error{
		fromNetwork, fromAPI, fromHook, fromWait, fromStorage, fromText, fromRender, fromBuild,
	} {
		if typed := classify(err); typed != nil {
			return typed
		}
	}
	return Wrap(Internal, err, "%v", err)
}

func clean(message string) string {
	message = withoutFieldValues(strings.TrimSpace(strings.ToValidUTF8(message, "?")))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
