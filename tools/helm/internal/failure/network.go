package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// RequestTimeoutError reports a request without a response in time.
type RequestTimeoutError struct{ After time.Duration }

func (e *RequestTimeoutError) Error() string {
	return fmt.Sprintf("the API server did not respond within %s", e.After)
}

// Timeout implements net.Error.
func (e *RequestTimeoutError) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *RequestTimeoutError) Temporary() bool { return true }

// ReadError reports a failed read of the cluster that the Helm SDK ignored.
type ReadError struct {
	Path   string
	Status int
	Err    error
}

func (e *ReadError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("reading %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("reading %s: the API server responded with %d %s", e.Path, e.Status, http.StatusText(e.Status))
}

func (e *ReadError) Unwrap() error { return e.Err }

func fromNetworkError(err error) *Error {
	if read, ok := errors.AsType[*ReadError](err); ok && read.Err == nil {
		return fromStatusCode(read)
	}
	if !isNetworkError(err) {
		return nil
	}
	return Wrap(Unreachable, err, "the cluster's API server is unreachable: %v", networkCause(err))
}

func fromStatusCode(read *ReadError) *Error {
	switch read.Status {
	case http.StatusUnauthorized:
		return Wrap(Unauthorized, read, "the cluster rejected the credentials: %v", read)
	case http.StatusForbidden:
		return Wrap(Forbidden, read, "the credentials lack a permission: %v", read)
	default:
		return Wrap(Unreachable, read, "the cluster's API server is unavailable: %v", read)
	}
}

func isNetworkError(err error) bool {
	if _, ok := errors.AsType[*RequestTimeoutError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return true
	}
	// net/http wraps all other errors of a round trip, such as an interrupted TLS handshake, in a url.Error.
	cause, ok := errors.AsType[*url.Error](err)
	return ok && !errors.Is(cause, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF)
}

// networkCause returns the error without the request's method and URL, which do not matter for the failure.
func networkCause(err error) error {
	if cause, ok := errors.AsType[*url.Error](err); ok {
		return cause.Err
	}
	return err
}
