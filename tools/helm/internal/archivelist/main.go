// archivelist lists the files that Helm finds in chart archives. A test compares them with what Chandler's check of
// archives finds.
//
// It reads archives from standard input, each after its length as four bytes, most significant first, and prints one line of
// JSON for each.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// file is a file of an archive.
type file struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// listing is the result for one archive: its files, or an error.
type listing struct {
	Files []file `json:"files"`
	Error string `json:"error,omitempty"`
}

func main() {
	if err := run(bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "archivelist:", err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	printed := json.NewEncoder(output)
	for {
		var length uint32
		if err := binary.Read(input, binary.BigEndian, &length); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		archive := make([]byte, length)
		if _, err := io.ReadFull(input, archive); err != nil {
			return err
		}
		result := listing{Files: []file{}}
		files, err := list(archive)
		if err != nil {
			result.Error = err.Error()
		} else {
			result.Files = append(result.Files, files...)
		}
		if err := printed.Encode(result); err != nil {
			return err
		}
	}
}

// list returns the files of an archive as LoadArchiveFiles of Helm's package archive finds them, with the names before it
// removes the first folder.
func list(archive []byte) ([]file, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	var files []file
	reader := tar.NewReader(unzipped)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if header.FileInfo().IsDir() || header.Typeflag == tar.TypeXGlobalHeader || header.Typeflag == tar.TypeXHeader {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		name := strings.ReplaceAll(header.Name, "\\", "/")
		files = append(files, file{Name: name, Digest: hex.EncodeToString(sum[:])})
	}
}
