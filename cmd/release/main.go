// Command release packs binaries of deepwork into what a release consists of: archives, a container
// image, a bundle for desktop applications, a plugin of Claude Code and the server's entry in the MCP
// registry. .ci/release builds the binaries and calls it. It writes the same bytes for the same
// input: names are sorted, and owners, modes and times are fixed.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// description says in at most 100 characters, the limit of the MCP registry, what deepwork is for.
const description = "Guides AI agents through multi-step work: workflows, reviews, a task board and runs"

// A platform is an operating system and a processor, by their names in Go.
type platform struct{ os, arch string }

var platforms = []platform{
	{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"},
	{"windows", "arm64"},
}

// program is the file name of the binary.
func (p platform) program() string {
	if p.os == "windows" {
		return "deepwork.exe"
	}
	return "deepwork"
}

// A release is what all files of a release have in common.
type release struct {
	version string
	commit  string
	time    time.Time // of the commit; all files have it
	from    string    // folder: OS-ARCH/deepwork[.exe], OS-ARCH/sbom.json, and files for every archive in common/
	to      string    // folder
	owner   owner
}

// name returns the file name, without extension, of what is for one platform.
func (r *release) name(p platform) string {
	return fmt.Sprintf("deepwork_%s_%s_%s", r.version, p.os, p.arch)
}

// binary returns the path of a platform's binary.
func (r *release) binary(p platform) string {
	return filepath.Join(r.from, p.os+"-"+p.arch, p.program())
}

func main() {
	var r release
	var seconds int64
	flag.StringVar(&r.version, "version", "", "`version` of the release")
	flag.StringVar(&r.commit, "commit", "", "`hash` of the commit that it was built from")
	flag.Int64Var(&seconds, "time", 0, "time of that commit, in `seconds` since 1970")
	flag.StringVar(&r.from, "from", "", "`folder` of the binaries")
	flag.StringVar(&r.to, "to", "", "`folder` for the release")
	flag.Parse()
	r.time = time.Unix(seconds, 0).UTC()
	if err := r.write(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// write writes the release, and the checksums last.
func (r *release) write() error {
	var err error
	if r.owner, err = readOwner(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.to, 0o755); err != nil {
		return err
	}

	var group errgroup.Group
	for _, p := range platforms {
		group.Go(func() error { return r.archive(p) })
	}
	group.Go(r.image)
	group.Go(r.plugin)
	group.Go(func() error { // whose entry has the checksum of the bundle
		if err := r.bundle(); err != nil {
			return err
		}
		return r.registry()
	})

	if err := group.Wait(); err != nil {
		return err
	}
	return r.checksums()
}

// readme returns the README for an archive. It begins with what is different without the source.
func (r *release) readme(p platform, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	return append(fmt.Appendf(nil,
		`> This is release %s for %s/%s, built from the commit %s. Copy `+"`%s`"+` to a folder in PATH; you need
> neither Go nor `+"`go install`"+`, and `+"`deepwork demo`"+
			` is the demo. The files and pictures that are linked below are in
> the source: %s

`, r.version, p.os, p.arch, r.commit, p.program(), r.owner.Homepage), text...), err
}

// archive writes the archive of a platform and, next to it, its list of components.
func (r *release) archive(p platform) error {
	top := r.name(p)
	files := []file{{name: top + "/" + p.program(), path: r.binary(p), mode: 0o755}}
	common := filepath.Join(r.from, "common")
	err := filepath.WalkDir(common, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		f := file{name: top + "/" + d.Name(), path: path, mode: 0o644}
		if d.Name() == "README.md" {
			f.path = ""
			f.data, err = r.readme(p, path)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return fmt.Errorf("packing for %s/%s: %w", p.os, p.arch, err)
	}

	pack, extension := writeTarGz, ".tar.gz"
	if p.os == "windows" {
		pack, extension = writeZip, ".zip"
	}
	if err := pack(filepath.Join(r.to, top+extension), files, r.time); err != nil {
		return fmt.Errorf("packing for %s/%s: %w", p.os, p.arch, err)
	}
	sbom, err := os.ReadFile(filepath.Join(r.from, p.os+"-"+p.arch, "sbom.json"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.to, top+".cdx.json"), sbom, 0o644)
}
