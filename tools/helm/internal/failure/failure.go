// Package failure classifies errors into the failure categories of the protocol and writes actionable messages.
//
// It classifies by type where it can: API status errors, network errors and the error types of this package. text.go
// matches the messages of those Helm errors that have no type of their own.
package failure

import (
	"errors"
	"fmt"
	"strings"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/redact"
)

// Short names of the failure categories.
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
	NotAllowed     = toolv1.FailureCategory_FAILURE_CATEGORY_NOT_ALLOWED
)

// maxMessage limits the size of a message in bytes, because messages end up in the status of objects.
const maxMessage = 2048

// Error is an error with a failure category.
type Error struct {
	Category toolv1.FailureCategory
	Message  string
	cause    error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.cause }

// New returns an error of the given category.
func New(category toolv1.FailureCategory, format string, args ...any) *Error {
	return &Error{Category: category, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of the given category that wraps cause.
func Wrap(category toolv1.FailureCategory, cause error, format string, args ...any) *Error {
	return &Error{Category: category, Message: fmt.Sprintf(format, args...), cause: cause}
}

// Proto returns the failure to report for err. Messages of the package or of the API server may quote values, so Proto
// redacts the given secrets in them.
func Proto(err error, secrets ...string) *toolv1.Failure {
	typed := Classify(err)
	message := typed.Message
	switch typed.Category {
	case InvalidValues, InvalidPackage, Rejected, Internal:
		message = redact.Message(message, secrets)
	}
	return &toolv1.Failure{Category: typed.Category, Message: sanitize(message)}
}

// Classify returns err with its category. An error that no classifier recognizes is Internal.
func Classify(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	for _, classify := range []func(error) *Error{
		fromNetworkError, fromAPIError, fromHookError, fromWaitError, fromStorageError, fromMessage, fromRenderError, fromBuildError,
	} {
		if typed := classify(err); typed != nil {
			return typed
		}
	}
	return Wrap(Internal, err, "%v", err)
}

// sanitize removes field values and invalid UTF-8 and truncates the message.
func sanitize(message string) string {
	message = withoutFieldValues(strings.TrimSpace(strings.ToValidUTF8(message, "?")))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
