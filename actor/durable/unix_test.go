//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"deepwork/actor/testkit"
)

// A pipe blocks nobody, and a link that takes a file's place is not followed.
func TestOpenRegularOpensNothingElse(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	_, _, err := Read(pipe, 5)
	testkit.Fails(t, err, "it is a named pipe")

	_, _, err = OpenRegular(pipe, os.O_RDONLY)
	testkit.Fails(t, err, "", "a pipe was opened")

	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Symlink(file, link)))
	_, _, err = OpenRegular(link, os.O_WRONLY)
	testkit.Fails(t, err, "", "a link was followed")

	f, fi, err := OpenRegular(file, os.O_RDWR)
	must(t, err)
	defer f.Close()
	testkit.Equal(t, fi.Size(), 1, "%v", fi)
}

// What lies in a folder that others may have prepared is opened if it is regular, inside and not too large.
func TestOnlyAFileInsideIsRead(t *testing.T) {
	dir, out := testkit.Dir(t), filepath.Join(testkit.Dir(t), "secret")
	must(t, errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("12345"), 0o600), os.WriteFile(out, nil, 0o600)))
	for name, target := range map[string]string{
		"relative": "sub/file", "absolute": filepath.Join(dir, "sub", "file"), "folder": "sub", "out": out,
		"up": "../" + filepath.Base(dir) + "/../../etc/passwd", "zero": "/dev/zero", "tee": "pipe",
		"above": filepath.Dir(out),
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}

	for _, name := range []string{"sub/file", "relative", "absolute", "folder/file", filepath.Join(dir, "relative")} {
		testkit.Equal(t, string(testkit.Get(ReadIn(dir, name, 5)).Must(t)), "12345", name)
		testkit.FailsWith(t, testkit.Get(ReadIn(dir, name, 4)).Err(), ErrTooLarge, name)
	}
	for name, want := range map[string]error{
		"out": ErrOutside, "zero": ErrOutside, "above/secret": ErrOutside, out: ErrOutside,
		"pipe": ErrNotRegular, "tee": ErrNotRegular, "sub": ErrNotRegular, "folder": ErrNotRegular,
		"none": fs.ErrNotExist, "up": fs.ErrNotExist, "": fs.ErrNotExist,
	} {
		testkit.FailsWith(t, testkit.Get(ReadIn(dir, name, 5)).Err(), want, name)
	}
	testkit.Fails(t, testkit.Get(ReadIn(dir, "out", 5)).Err(), "out cannot be read: it leads out of "+dir+", to "+out)

	// A pipe in the place of a folder is left out of a list.
	root := testkit.Get(os.OpenRoot(dir)).Must(t)
	defer root.Close()
	testkit.Fails(t, testkit.Get(OpenFolderIn(root, "pipe")).Err(), "is a named pipe, not a folder")
	testkit.Same(t, testkit.Get(fs.Glob(FolderFS{root}, "*/file")).Must(t), []string{"folder/file", "sub/file"})
}

// A full disk leaves the old file alone, and the error says what to do.
func TestPutOnAFullDisk(t *testing.T) {
	path := oldFile(t)
	d := Disk{Carry: func(op Op, do func() error) error {
		if op.Do != OpWrite {
			return do()
		}
		if _, err := op.File.Write(op.Data[:3]); err != nil {
			return err
		}
		return &fs.PathError{Op: "write", Path: op.Path, Err: unix.ENOSPC}
	}}
	err := Explain(d.Put(path, []byte("the new one"), PutOptions{}), path)
	testkit.True(t, errors.Is(err, unix.ENOSPC) && strings.HasSuffix(err.Error(),
		"; free space on the disk that holds "+path+" and call again"), "the error is %v", err)
	holds(t, filepath.Dir(path), "a=old")
}

func TestExplain(t *testing.T) {
	for err, hint := range map[error]string{
		unix.ENOSPC: "free space",
		unix.EDQUOT: "free space",
		unix.EROFS:  "make it writable",
		unix.EACCES: "permission for /p",
		unix.EMFILE: "ulimit -n",
		unix.ENFILE: "ulimit -n",
		unix.EIO:    "",
	} {
		wrapped := fmt.Errorf("doing it: %w", &fs.PathError{Op: "open", Path: "/p", Err: err})
		got := Explain(wrapped, "/p")
		testkit.FailsWith(t, got, err)
		testkit.Contains(t, got.Error(), hint)
		testkit.Equal(t, (hint == ""), (got == wrapped))
		testkit.Equal(t, Explain(fmt.Errorf("more: %w", got), "/q").Error(), "more: "+got.Error())
	}
	testkit.True(t, Explain(nil, "/p") == nil, "no error is explained")
}

// A file info whose owner is this user, with a mode and a group.
type ownInfo struct {
	fs.FileInfo
	mode  fs.FileMode
	group int
}

func (i ownInfo) Mode() fs.FileMode { return i.mode }
func (i ownInfo) IsDir() bool       { return i.mode.IsDir() }

func (i ownInfo) Sys() any {
	return &syscall.Stat_t{Uid: uint32(os.Geteuid()), Gid: uint32(i.group)}
}

// A file that a group may write to can be trusted if this user is in the group, whichever of theirs it is.
func TestFaultOfAGroupOfTheUser(t *testing.T) {
	groups := append(testkit.Get(os.Getgroups()).Must(t), os.Getegid())
	for _, id := range groups {
		testkit.Equal(t, FaultOf("f", ownInfo{mode: 0o664, group: id}), "", "group %d", id)
	}
	testkit.Contains(t, FaultOf("f", ownInfo{mode: 0o664, group: slices.Max(groups) + 1}), "which is not yours")
}
