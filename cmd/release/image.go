package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user and the group of the container: deepwork accepts only a state folder of its own.
const nobody = 65532

// image writes an OCI image layout with one image for each processor. It has no base image: only the
// binary, the certificates of well-known authorities, and the folders that a container mounts.
func (r *release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}

		img, err := r.imageFor(p)
		if err != nil {
			return fmt.Errorf("making the image for %s: %w", p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	path, err := layout.Write(filepath.Join(r.to, "image"), empty.Index)
	if err == nil {
		err = path.AppendIndex(index,
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	}
	if err == nil {
		err = filepath.WalkDir(string(path), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return os.Chmod(name, 0o644) // the library makes some private, and others programs
		})
	}
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}

	return nil
}

func (r *release) imageFor(p platform) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.time}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/deepwork"},
			Cmd:        []string{"serve"},
			Env:        []string{"PATH=/", "DEEPWORK_STATE_DIR=/state"},
			User:       fmt.Sprintf("%d:%d", nobody, nobody),
			WorkingDir: "/project",
			Volumes:    map[string]struct{}{"/state": {}},
			Labels:     r.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	for _, add := range []struct {
		what  string
		files []file
	}{
		{"certificates and folders", []file{
			{name: "etc/", mode: 0o755}, {name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
			{name: "etc/ssl/certs/ca-certificates.crt", data: authorities(), mode: 0o644},
			{name: "project/", mode: 0o755, user: nobody},
			{name: "state/", mode: 0o700, user: nobody},
			{name: "tmp/", mode: 0o1777},
		}},
		{"deepwork " + r.version, []file{
			{name: "THIRD_PARTY_LICENSES", path: filepath.Join(r.from, "common", "THIRD_PARTY_LICENSES"), mode: 0o644},
			{name: "deepwork", path: r.binary(p), mode: 0o755},
		}},
	} {
		layer, err := r.layer(add.files)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: r.time}, CreatedBy: add.what}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// layer returns a layer with the files.
func (r *release) layer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, files, r.time); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// labels describe the image to people, and prove to the MCP registry that the server's owner made it.
func (r *release) labels() map[string]string {
	l := map[string]string{
		"io.modelcontextprotocol.server.name":  r.owner.Name,
		"org.opencontainers.image.title":       "deepwork",
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.url":         r.owner.Homepage,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.time.Format("2006-01-02T15:04:05Z"),
	}
	if r.owner.License != "" {
		l["org.opencontainers.image.licenses"] = r.owner.License
	}
	return l
}

// authorities returns the certificates that Mozilla trusts without a condition, as one PEM file.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a bytes.Buffer does not fail
		}
	}
	return b.Bytes()
}
