package git

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
)

// Untracked is the status in Changes of a file that is in no commit and not ignored.
const Untracked = "??"

// Changes returns the files of a command's work tree that differ from the commit that is checked out, by git's status
// of them, which has two letters; untracked is which untracked ones: all, normal (with folders), no. The paths are
// relative to the top of the work tree, with slashes.
//
// Files in same are no changes, though git shows them as modified right after a checkout: they have the bytes that are
// in the repository, which git would convert if it added them, as it does with CRLF where .gitattributes has eol.
func Changes(ctx context.Context, c Command, untracked string) (changed map[string][]string, same []string, err error) {
	c.Args = []string{"status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=" + untracked}
	out, err := Output(ctx, c)
	if err != nil {
		return nil, nil, err
	}

	changed, top := map[string][]string{}, c.WorkTree
	for _, line := range Fields(out) {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "1": // XY sub mH mI mW hH hI path
			f := strings.SplitN(rest, " ", 8)
			if len(f) < 8 {
				return nil, nil, fmt.Errorf("git status: unexpected line %q", line)
			}
			if top == "" && f[0] == ".M" {
				if top, err = TopLevel(ctx, c.Dir); err != nil {
					return nil, nil, err
				}
			}
			name := f[7]
			if f[0] == ".M" && f[3] == f[4] && isBlob(filepath.Join(top, filepath.FromSlash(name)), f[6]) {
				same = append(same, name)
				continue
			}
			xy := strings.ReplaceAll(f[0], ".", " ")
			changed[xy] = append(changed[xy], name)
		case "u": // XY sub m1 m2 m3 mW h1 h2 h3 path
			f := strings.SplitN(rest, " ", 10)
			changed[f[0]] = append(changed[f[0]], f[len(f)-1])
		case "?":
			changed[Untracked] = append(changed[Untracked], rest)
		}
	}
	return changed, same, nil
}

// isBlob reports whether a regular file has exactly the bytes of the blob with this id.
func isBlob(path, id string) bool {
	f, fi, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()

	h := sha1.New()
	if len(id) == 2*sha256.Size {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", fi.Size())
	_, err = io.CopyN(h, f, fi.Size())
	return err == nil && hex.EncodeToString(h.Sum(nil)) == id
}
