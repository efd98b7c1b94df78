package release

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chandler.dev/tools/helm/internal/failure"
)

// noise returns text that can be compressed to half of its size.
func noise(bytes int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, bytes)
	for i := range text {
		text[i] = "0123456789abcdef"[random.IntN(16)]
	}
	return string(text)
}

func releaseOf(manifest string) *rspb.Release {
	return &rspb.Release{
		Name: "web", Namespace: "apps", Version: 1,
		Info:     &rspb.Info{Status: rcommon.StatusDeployed},
		Chart:    &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "web", Version: "0.0.0"}},
		Manifest: manifest,
	}
}

// A size must be that of the Secret that Helm writes, unless that clearly fits.
func TestRecordSize(t *testing.T) {
	for name, c := range map[string]struct {
		manifest    string
		exact, fits bool
	}{
		"small":        {strings.Repeat(testObjects, 100), false, true},
		"compressible": {strings.Repeat(noise(1<<10), 8<<10), false, true},
		"half":         {noise(800 << 10), false, true},
		"just fits":    {noise(1400 << 10), true, true},
		"large":        {noise(2 << 20), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			release, secrets := releaseOf(c.manifest), &secrets{}
			if err := driver.NewSecrets(secrets).Create("web.v1", release); err != nil {
				t.Fatal(err)
			}
			want := len(secrets.written.Data["release"])
			got, err := recordSize(release)
			if err != nil || (got <= maxRecord) != c.fits || (want <= maxRecord) != c.fits || c.exact && got != want {
				t.Fatalf("got %d, want %d, %v", got, want, err)
			}
			if err := checkRecord(release); (err == nil) != c.fits {
				t.Fatal(err)
			}
		})
	}
}

func TestLargeRecordsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		ok, large error
		want      string
	}{
		"bundle": {checkBundleSize(maxRecord), checkBundleSize(maxSecret), "the bundle take 1024 KiB"},
		"chart":  {checkRecordSize(maxRecord, maxRecord), checkRecordSize(maxSecret, maxRecord), "would take 1024 KiB, more than the 1008 KiB"},
	} {
		if c.ok != nil {
			t.Errorf("%s: %v", name, c.ok)
		}
		if c.large == nil || failure.Classify(c.large).Category != failure.InvalidPackage || !strings.Contains(c.large.Error(), c.want) {
			t.Errorf("%s: %v", name, c.large)
		}
	}
}

func TestLargeSecretsAreNotSent(t *testing.T) {
	secrets := &secrets{}
	records := newRecords(secrets, "web")
	large := &corev1.Secret{Data: map[string][]byte{"release": make([]byte, maxSecret+1)}}
	_, err := records.Create(context.Background(), large, metav1.CreateOptions{})
	if err == nil || failure.Classify(err).Category != failure.InvalidPackage || secrets.written != nil {
		t.Fatalf("got %v", err)
	}
	fits := &corev1.Secret{Data: map[string][]byte{"release": make([]byte, maxSecret)}}
	if _, err := records.Create(context.Background(), fits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Only the rendered objects are checked, which Helm builds first, and before they are parsed.
func TestManifestIsCheckedFirst(t *testing.T) {
	refused, checked := errors.New("refused"), ""
	client := &client{checkManifest: func(manifest []byte) error {
		checked += string(manifest)
		return refused
	}}
	_, err := client.Build(strings.NewReader("not parsed"), false)
	if !errors.Is(err, refused) || checked != "not parsed" || !client.rendered {
		t.Fatalf("got %v after %q", err, checked)
	}
}
