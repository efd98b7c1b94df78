package release

import (
	"bytes"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/postrenderer"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/failure"
)

// fileAnnotation tells Helm the file of an object that a post-renderer returns (filenameAnnotation in its package action).
// Helm removes it.
const fileAnnotation = "postrenderer.helm.sh/postrender-filename"

// renderedBundle are the objects of a bundle for one revision. It is the post-renderer of a chart without templates: Helm
// evaluates nothing, and stores the objects, but no files.
type renderedBundle struct {
	objects  []bundle.Object
	manifest []byte
}

var _ postrenderer.PostRenderer = (*renderedBundle)(nil)

// Run implements postrenderer.PostRenderer.
func (b *renderedBundle) Run(*bytes.Buffer) (*bytes.Buffer, error) {
	return bytes.NewBuffer(b.manifest), nil
}

// renderBundle returns the objects of the next revision. It fails if the record of the revision would be too large.
func (r *Release) renderBundle(spec ApplySpec, revision int, upgrade bool) (*renderedBundle, error) {
	if spec.Options.GetValuesReuse() != toolv1.ValuesReuse_VALUES_REUSE_UNSPECIFIED {
		return nil, failure.New(failure.InvalidValues, "a bundle cannot reuse the values of the previous revision: give all values")
	}
	objects, err := spec.Bundle.Render(r.operation.Context(), spec.Values, bundle.Release{
		ReleaseOptions: common.ReleaseOptions{
			Name:      r.name,
			Namespace: r.namespace,
			Revision:  revision,
			IsInstall: !upgrade,
			IsUpgrade: upgrade,
		},
		Capabilities: r.session.Capabilities(),
	})
	if err != nil {
		return nil, err
	}
	rendered, err := newRenderedBundle(objects, spec.Options.GetCrds())
	if err != nil {
		return nil, err
	}
	size, err := recordSize(&rspb.Release{
		Name:      r.name,
		Namespace: r.namespace,
		Chart:     spec.Chart.Clone(),
		Config:    spec.Values,
		Manifest:  string(rendered.manifest),
		Version:   revision,
	})
	if err != nil {
		return nil, err
	}
	return rendered, checkBundleSize(size)
}

func checkBundleSize(size int) error {
	if size <= maxRecord {
		return nil
	}
	return failure.New(failure.InvalidPackage,
		"the objects of the bundle take %d KiB in the record of the release, more than the %d KiB that a Secret has space for: "+
			"divide the bundle", size>>10, maxRecord>>10)
}

// newRenderedBundle returns the objects as Helm gets them, without CRDs if they are skipped.
func newRenderedBundle(objects []bundle.Object, crds toolv1.CrdPolicy) (*renderedBundle, error) {
	rendered := &renderedBundle{}
	var manifest bytes.Buffer
	for _, object := range objects {
		if object.IsCRD() && crds == toolv1.CrdPolicy_CRD_POLICY_SKIP {
			continue
		}
		object.Unstructured = object.DeepCopy()
		if object.IsCRD() {
			// Deleting a CRD deletes all objects of its kind, also those of others.
			setAnnotation(object.Unstructured, kube.ResourcePolicyAnno, kube.KeepPolicy)
		}
		rendered.objects = append(rendered.objects, object)
		if err := writeDocument(&manifest, object); err != nil {
			return nil, err
		}
	}
	rendered.manifest = manifest.Bytes()
	return rendered, nil
}

func writeDocument(manifest *bytes.Buffer, object bundle.Object) error {
	object.Unstructured = object.DeepCopy()
	setAnnotation(object.Unstructured, fileAnnotation, sourceName(object.File))
	text, err := object.YAML()
	if err != nil {
		return err
	}
	manifest.WriteString("---\n")
	manifest.Write(text)
	return nil
}

// sourceName returns the name of a file in the record. Helm ignores files whose names start with an underscore.
func sourceName(file string) string {
	folder, name := path.Split(file)
	return path.Join(folder, strings.TrimLeft(name, "_"))
}

func setAnnotation(object *unstructured.Unstructured, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}
