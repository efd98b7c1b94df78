package release

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	rspb "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/redact"
)

const (
	// maxLogTail is the size of the returned end of a log, in bytes.
	maxLogTail = 2 << 10
	// logLines and logBytes limit what is read of the log of a container.
	logLines = int64(50)
	logBytes = int64(64 << 10)
	// maxLogPods is the number of Pods of a Job whose logs are read.
	maxLogPods = 3
)

// addLog adds the end of the log of a failed test to its result.
func (r *Release) addLog(result *toolv1.TestResult, test *rspb.Hook, secrets []string) {
	text, err := r.readLogs(r.testRef(test))
	result.LogTail = logTail(text, secrets)
	if err != nil {
		result.Message += "; its log could not be read: " + failure.Proto(err, secrets...).GetMessage()
	}
}

// logTail returns the end of a log without secrets.
func logTail(text string, secrets []string) string {
	// The whole text: a secret at the beginning of the tail would not be found.
	text = strings.TrimSpace(strings.ToValidUTF8(redact.Message(text, secrets), "?"))
	if len(text) > maxLogTail {
		text = strings.ToValidUTF8(text[len(text)-maxLogTail:], "")
	}
	return text
}

// readLogs returns the ends of the logs of the Pods of a test.
func (r *Release) readLogs(test *toolv1.ObjectRef) (string, error) {
	core, err := typedcorev1.NewForConfig(r.session.Config())
	if err != nil {
		return "", err
	}
	pods := core.Pods(cmp.Or(test.GetNamespace(), r.namespace))
	found, err := podsOf(r.operation.Context(), pods, test)
	if err != nil {
		return "", err
	}
	var (
		text     strings.Builder
		failures []error
	)
	for _, pod := range found {
		containers := append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
		for _, container := range containers {
			log, err := readLog(r.operation.Context(), pods, pod.Name, container.Name)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			if len(containers) > 1 {
				fmt.Fprintf(&text, "container %s:\n", container.Name)
			}
			text.WriteString(log)
		}
	}
	return text.String(), errors.Join(failures...)
}

// podsOf returns the Pods of a test, which is a Pod or a Job.
func podsOf(ctx context.Context, pods typedcorev1.PodInterface, test *toolv1.ObjectRef) ([]corev1.Pod, error) {
	switch test.GetKind() {
	case "Pod":
		pod, err := pods.Get(ctx, test.GetName(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []corev1.Pod{*pod}, nil
	case "Job":
		selector := labels.Set{"job-name": test.GetName()}.AsSelector()
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return nil, err
		}
		return list.Items[max(0, len(list.Items)-maxLogPods):], nil
	}
	return nil, nil
}

// readLog returns the end of the log of a container.
func readLog(ctx context.Context, pods typedcorev1.PodInterface, pod, container string) (string, error) {
	lines, limit := logLines, logBytes
	stream, err := pods.GetLogs(pod, &corev1.PodLogOptions{Container: container, TailLines: &lines, LimitBytes: &limit}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(io.LimitReader(stream, logBytes))
	if err != nil {
		return "", err
	}
	return completeLines(string(text), len(text) == int(logBytes)), nil
}

// completeLines returns a text without an incomplete last line: part of a secret in it would not be recognized.
func completeLines(text string, isCut bool) string {
	switch end := strings.LastIndexByte(text, '\n'); {
	case isCut && end < 0:
		return ""
	case isCut:
		return text[:end+1]
	case text != "" && !strings.HasSuffix(text, "\n"):
		return text + "\n"
	}
	return text
}

// releaseSecrets returns the texts in the Secrets of a release and of its hooks.
func releaseSecrets(release *rspb.Release) []string {
	texts := manifestSecrets(release.Manifest)
	for _, hook := range release.Hooks {
		texts = append(texts, manifestSecrets(hook.Manifest)...)
	}
	return texts
}

// manifestSecrets returns the texts in the Secrets of a manifest.
func manifestSecrets(manifest string) []string {
	var texts []string
	for _, document := range releaseutil.SplitManifests(manifest) {
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		texts = append(texts, secretTexts([]byte(document))...)
		if err := yaml.Unmarshal([]byte(document), &list); err != nil {
			continue
		}
		for _, item := range list.Items {
			texts = append(texts, secretTexts(item)...)
		}
	}
	return texts
}

// secretTexts returns the texts in a Secret, decoded and as they are stored. A test may log either of them.
func secretTexts(document []byte) []string {
	var secret struct {
		Kind       string            `json:"kind"`
		Data       map[string]string `json:"data"`
		StringData map[string]string `json:"stringData"`
	}
	if err := yaml.Unmarshal(document, &secret); err != nil || secret.Kind != "Secret" {
		return nil
	}
	var texts []string
	for _, encoded := range secret.Data {
		texts = append(texts, redact.Strings(encoded)...)
		if text, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			texts = append(texts, redact.Strings(string(text))...)
		}
	}
	for _, text := range secret.StringData {
		texts = append(texts, redact.Strings(text)...)
		texts = append(texts, redact.Strings(base64.StdEncoding.EncodeToString([]byte(text)))...)
	}
	return texts
}
