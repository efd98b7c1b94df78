package release

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// secrets fails every update while err is set.
type secrets struct {
	typedcorev1.SecretInterface
	err error
}

func (s *secrets) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	return secret, s.err
}

func TestWriteErrorIsReportedUntilAWriteSucceeds(t *testing.T) {
	storage := &secrets{err: errors.New("no network")}
	records := newRecords(storage, "web")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web.v1"}}
	if _, err := records.Update(context.Background(), secret, metav1.UpdateOptions{}); err == nil {
		t.Fatal("the update did not fail")
	}
	if err := records.writeError(); !errors.Is(err, storage.err) {
		t.Fatalf("got %v", err)
	}
	storage.err = nil
	if _, err := records.Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := records.writeError(); err != nil {
		t.Fatalf("got %v", err)
	}
}
