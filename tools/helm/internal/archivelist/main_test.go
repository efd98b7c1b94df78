package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"strings"
	"testing"
)

// pack returns an archive with one file in a folder.
func pack(t *testing.T, name, content string) []byte {
	t.Helper()
	var data bytes.Buffer
	zipped := gzip.NewWriter(&data)
	writer := tar.NewWriter(zipped)
	for _, header := range []*tar.Header{
		{Name: "web/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))},
	} {
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writer.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func TestRun(t *testing.T) {
	packed := pack(t, "web/Chart.yaml", "name: web\n")
	var input, output bytes.Buffer
	for _, content := range [][]byte{packed, []byte("text")} {
		if err := binary.Write(&input, binary.BigEndian, uint32(len(content))); err != nil {
			t.Fatal(err)
		}
		input.Write(content)
	}
	if err := run(&input, &output); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"name":"Chart.yaml"`) || !strings.Contains(lines[1], "error") {
		t.Fatalf("got %q", lines)
	}
}
