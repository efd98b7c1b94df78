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

// RequestTimeout says that one request to the API server got no answer in time.
type RequestTimeout struct{ After time.Duration }

func (e *RequestTimeout) Error() string {
	return fmt.Sprintf("the API server did not answer within %s", e.After)
}

// Timeout makes it a net.Error like any other timeout.
func (e *RequestTimeout) Timeout() bool { return true }

// Temporary is part of net.Error.
func (e *RequestTimeout) Temporary() bool { return true }

// Read says that a read of the cluster failed in a place where the SDK goes on without it.
type Read struct {
	Path   string
	Status int
	Err    error
}

func (e *Read) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("reading %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("reading %s: the API server answered %d %s", e.Path, e.Status, http.StatusText(e.Status))
}

func (e *Read) Unwrap() error { return e.Err }

func fromNetwork(err error) *Error {
	if read, ok := errors.AsType[*Read](err); ok && read.Err == nil {
		return fromStatus(read)
	}
	if !isNetwork(err) {
		return nil
	}
	return Wrap(Unreachable, err, "the cluster's API server cannot be reached: %v", networkCause(err))
}

func fromStatus(read *Read) *Error {
	switch read.Status {
	case http.StatusUnauthorized:
		return Wrap(Unauthorized, read, "the cluster refused the credentials: %v", read)
	case http.StatusForbidden:
		return Wrap(Forbidden, read, "the credentials lack a permission: %v", read)
	default:
		return Wrap(Unreachable, read, "the cluster's API server does not work properly: %v", read)
	}
}

func isNetwork(err error) bool {
	if _, ok := errors.AsType[*RequestTimeout](err); ok {
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
	// Every other failure of a round trip (a broken connection, a handshake cut short) carries the request's URL.
	cause, ok := errors.AsType[*url.Error](err)
	return ok && !errors.Is(cause, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF)
}

// networkCause leaves out the request: every request would have failed, and its URL says nothing.
func networkCause(err error) error {
	if cause, ok := errors.AsType[*url.Error](err); ok {
		return cause.Err
	}
	return err
}
