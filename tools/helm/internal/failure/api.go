package failure

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func fromAPIError(err error) *Error {
	if noMatch, ok := errors.AsType[*meta.NoKindMatchError](err); ok {
		return Wrap(Rejected, err, "the cluster does not serve %s: install its CustomResourceDefinition first",
			noMatch.GroupKind)
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return nil
	}
	switch reason := apierrors.ReasonForError(err); {
	case apierrors.IsUnauthorized(err):
		return Wrap(Unauthorized, err, "the cluster rejected the credentials: %v", err)
	case isNamespaceTerminating(err):
		return Wrap(Rejected, err, "the namespace is being deleted: %v", err)
	case apierrors.IsForbidden(err):
		return Wrap(Forbidden, err, "the credentials lack a permission: %v", err)
	case apierrors.IsConflict(err) && isApplyConflict(status):
		return Wrap(Conflict, err, "another field manager owns fields of the release: set `conflicts: Force` in an AddonPolicy to "+
			"take the fields over, or `conflicts: IgnoreFields` to leave them to %s: %v", FieldManagers(conflictCauses(err)), err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return Wrap(Conflict, err, "another client created or changed the object: %v", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		reason == metav1.StatusReasonUnsupportedMediaType:
		return Wrap(Rejected, err, "the API server rejected an object: %v", err)
	case apierrors.IsNotFound(err) && concerns(status, "namespaces"):
		return Wrap(Rejected, err, "the namespace does not exist (create it or set createNamespace): %v", err)
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsGone(err):
		return Wrap(Rejected, err, "the API server rejected a request: %v", err)
	case apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err):
		return Wrap(Unreachable, err, "the cluster's API server is unavailable: %v", err)
	case apierrors.IsInternalError(err):
		// Usually an admission webhook that the API server cannot call.
		return Wrap(Rejected, err, "the API server could not process an object: %v", err)
	}
	return Wrap(Rejected, err, "the API server rejected a request: %v", err)
}

func isNamespaceTerminating(err error) bool {
	_, terminating := apierrors.StatusCause(err, "NamespaceTerminating")
	return terminating
}

func isApplyConflict(status apierrors.APIStatus) bool {
	details := status.Status().Details
	if details == nil {
		return false
	}
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			return true
		}
	}
	return false
}

// conflictCauses returns the field conflicts of all objects that an error is about.
func conflictCauses(err error) []metav1.StatusCause {
	var causes []metav1.StatusCause
	//nolint:errorlint // Each error of the tree is visited.
	switch err := err.(type) {
	case apierrors.APIStatus:
		if details := err.Status().Details; details != nil {
			causes = append(causes, details.Causes...)
		}
	case interface{ Unwrap() error }:
		return conflictCauses(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			causes = append(causes, conflictCauses(inner)...)
		}
	}
	return causes
}

// FieldManagers returns the quoted names of the field managers with which an apply conflicts (NewConflictError in
// k8s.io/apimachinery/pkg/util/managedfields).
func FieldManagers(causes []metav1.StatusCause) string {
	var managers []string
	for _, cause := range causes {
		_, text, found := strings.Cut(cause.Message, "conflict with ")
		quoted, err := strconv.QuotedPrefix(text)
		if cause.Type == metav1.CauseTypeFieldManagerConflict && found && err == nil && !slices.Contains(managers, quoted) {
			managers = append(managers, quoted)
		}
	}
	if len(managers) == 0 {
		return "their manager"
	}
	slices.Sort(managers)
	return strings.Join(managers, ", ")
}

func concerns(status apierrors.APIStatus, resource string) bool {
	details := status.Status().Details
	return details != nil && details.Kind == resource
}
