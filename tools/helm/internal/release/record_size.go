package release

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"

	rspb "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"

	"chandler.dev/tools/helm/internal/failure"
)

// Helm stores the chart, the values and all rendered objects of a revision in one Secret. It creates the Secret after CRDs, after
// the namespace, and after it has deleted old revisions. So the size of the record is checked before all of them.

const (
	// maxSecret is the maximum size of the data of a Secret (MaxSecretSize in k8s.io/api/core/v1).
	maxSecret = corev1.MaxSecretSize
	// recordReserve is left for what an operation adds to the record of a release, such as its description.
	recordReserve = 16 << 10
	// maxRecord is the maximum size of a new record.
	maxRecord = maxSecret - recordReserve
)

// checkRecordSize fails if a record of a chart is larger than the limit.
func checkRecordSize(size, limit int) error {
	if size <= limit {
		return nil
	}
	return failure.New(failure.InvalidPackage,
		"the record of the release would take %d KiB, more than the %d KiB that a Secret has space for: it contains the chart, its "+
			"values and all rendered objects. Install a part of the objects, such as the CRDs, as a release of its own, or remove "+
			"files that the chart does not need", size>>10, limit>>10)
}

// checkRecord fails if the record of a revision of a chart would be too large.
func checkRecord(revision *rspb.Release) error {
	size, err := recordSize(revision)
	if err != nil {
		return err
	}
	return checkRecordSize(size, maxRecord)
}

// checkManifest fails if the record of the next revision would be too large with these rendered objects. Helm does not yet show
// hooks and notes at this point, which are usually small.
func (r *Release) checkManifest(spec ApplySpec, manifest []byte) error {
	return checkRecord(&rspb.Release{
		Name:      r.name,
		Namespace: r.namespace,
		Chart:     spec.Chart.Clone(),
		Config:    spec.Values,
		Manifest:  string(manifest),
	})
}

// checkNextRecord fails if the record of the next revision would be too large. It is for charts whose crds/ directory is applied
// before Helm renders the other objects. If they cannot be rendered without the CRDs, checkManifest is left to check them.
func (r *Release) checkNextRecord(spec ApplySpec, upgrade bool) error {
	revisions, err := r.records.newestAndDeployed()
	if err != nil {
		return err
	}
	next, err := r.renderNext(spec, revisions, upgrade)
	if err != nil {
		r.operation.Log.Debug("the chart cannot be rendered before its CRDs are applied", "error", failure.Classify(err).Category.String())
		r.operation.Transport.ForgetFailedReads()
		return nil
	}
	return checkRecord(next)
}

// checkSecret fails if the API server would refuse the Secret of a record for its size.
func checkSecret(secret *corev1.Secret) error {
	size := 0
	for _, data := range secret.Data {
		size += len(data)
	}
	return checkRecordSize(size, maxSecret)
}

// recordSize returns the size of a release in its Secret (encodeRelease in Helm's package driver), or an estimate if that clearly
// fits: most records are small, and compressing a large one as Helm does takes much longer.
func recordSize(release *rspb.Release) (int, error) {
	data, err := json.Marshal(release)
	if err != nil {
		return 0, err
	}
	if size := base64.StdEncoding.EncodedLen(len(data)); size <= maxRecord {
		return size, nil
	}
	// For some data, the faster compression is a few percent better.
	if size, err := compressedSize(data, gzip.BestSpeed); err != nil || size <= maxRecord/4*3 {
		return size, err
	}
	return compressedSize(data, gzip.BestCompression)
}

func compressedSize(data []byte, level int) (int, error) {
	var zipped bytes.Buffer
	writer, err := gzip.NewWriterLevel(&zipped, level)
	if err != nil {
		return 0, err
	}
	if _, err := writer.Write(data); err != nil {
		return 0, err
	}
	if err := writer.Close(); err != nil {
		return 0, err
	}
	return base64.StdEncoding.EncodedLen(zipped.Len()), nil
}
