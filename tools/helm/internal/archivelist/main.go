// archivelist lists the files that Helm finds in chart archives. A test compares them with what Chandler's check of
// archives finds.
//
// It reads archives from standard input, each after its length as four bytes, most significant first, and prints one line of
// JSON for each.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
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
		packed := make([]byte, length)
		if _, err := io.ReadFull(input, packed); err != nil {
			return err
		}
		result := listing{Files: []file{}}
		files, err := list(packed)
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

// list returns the files of a packaged chart as Helm's loader finds them.
func list(packed []byte) ([]file, error) {
	loaded, err := archive.LoadArchiveFiles(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, one := range loaded {
		sum := sha256.Sum256(one.Data)
		files = append(files, file{Name: one.Name, Digest: hex.EncodeToString(sum[:])})
	}
	return files, nil
}
