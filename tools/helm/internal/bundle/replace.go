package bundle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ReplaceAnnotation is the annotation of objects that may be deleted and created again.
	ReplaceAnnotation = "chandler.dev/replace"
	// ReplaceWhenImmutable is the value of ReplaceAnnotation with which an object is replaced if an immutable field changes.
	ReplaceWhenImmutable = "WhenImmutable"
)

// checkReplace returns what is wrong with the ReplaceAnnotation of an object, or an empty string.
func checkReplace(object metav1.Object) string {
	value, found := object.GetAnnotations()[ReplaceAnnotation]
	if !found || value == ReplaceWhenImmutable {
		return ""
	}
	return fmt.Sprintf("the annotation %s must be %s", ReplaceAnnotation, ReplaceWhenImmutable)
}
