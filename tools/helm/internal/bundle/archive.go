package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

const (
	// maxUnpacked limits the total size of the files of an archive.
	maxUnpacked = 100 << 20
	// maxFiles limits the number of entries of an archive.
	maxFiles = 20_000
)

// Unpack returns the manifests in a gzip-compressed tar archive, sorted by path. It ignores other files.
func Unpack(archive []byte) ([]File, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	// Limits headers and padding, too.
	reader := tar.NewReader(io.LimitReader(unzipped, 2*maxUnpacked))
	var files []File
	size := 0
	for entries := 1; ; entries++ {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if entries > maxFiles {
			return nil, fmt.Errorf("it contains more than %d files", maxFiles)
		}
		file, err := unpackFile(reader, header, maxUnpacked-size)
		if err != nil {
			return nil, err
		}
		if file != nil {
			size += len(file.Content)
			files = append(files, *file)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, checkUnique(files)
}

// unpackFile returns a file of at most limit bytes, or nil if it contains no manifests.
func unpackFile(reader io.Reader, header *tar.Header, limit int) (*File, error) {
	name := strings.TrimPrefix(header.Name, "./")
	switch header.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil, nil
	default:
		return nil, errors.New("it contains an entry that is neither a file nor a folder")
	}
	if !fs.ValidPath(name) {
		return nil, errors.New("it contains a name that is outside of the bundle")
	}
	if !IsManifest(name) {
		return nil, nil
	}
	content, err := io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(content) > limit {
		return nil, fmt.Errorf("it unpacks to more than %d MiB", maxUnpacked>>20)
	}
	return &File{Path: name, Content: content}, nil
}

func checkUnique(files []File) error {
	for i := 1; i < len(files); i++ {
		if files[i].Path == files[i-1].Path {
			return fmt.Errorf("it contains %s twice", files[i].Path)
		}
	}
	return nil
}
