package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"deepwork/session/state"
	"deepwork/session/store"
)

// mount gives a file system of its own, of size bytes.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// dirOn is the session folder of a project on a disk, which has its state too.
func dirOn(t *testing.T, disk string) string {
	t.Setenv(state.Env, filepath.Join(disk, "state"))
	must(t, os.Mkdir(filepath.Join(disk, "project"), 0o700))
	return filepath.Join(disk, "project", ".deepwork", "tmp")
}

func TestFullDisk(t *testing.T) {
	root := mount(t, "size=256k,mode=700")
	dir := dirOn(t, root)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	must(t, s.PutDefinition(ctx, strings.Repeat("a", 64), []byte("x")))
	must(t, s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return nil, nil })) // which makes the claim lock
	if err := os.WriteFile(filepath.Join(root, "ballast"), make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	before := tree(t, dir)
	big := sample(20_000)
	for what, err := range map[string]error{
		"Write":  s.Write(ctx, "0123abcd", big),
		"Create": s.Create(ctx, "00000001", big),
		"Update": s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return big, nil }),
		"define": s.PutDefinition(ctx, strings.Repeat("b", 64), big),
	} {
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free space on the disk that holds "+root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := tree(t, dir); afterFirstLine(after) != afterFirstLine(before) {
		t.Errorf("the folder changed\nfrom %s\nto   %s", before, after)
	}
	mustRead(t, s, "0123abcd", numbered(1))
	// A server that comes now cannot claim a place, and can read.
	late := open(t, dir, Options{})
	mustRead(t, late, "0123abcd", numbered(1))
	if err := late.Write(ctx, "0123abcd", big); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a late server: %v", err)
	}
	must(t, os.Remove(filepath.Join(root, "ballast")))
	must(t, s.Write(ctx, "0123abcd", big))
	must(t, late.Write(ctx, "00000001", big))
	mustRead(t, s, "0123abcd", big)
}

func TestReadOnlyDisk(t *testing.T) {
	root := mount(t, "size=1m,mode=700")
	dir := dirOn(t, root)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	must(t, os.WriteFile(s.RecordPath("00000bad"), []byte("garbage"), 0o600))
	must(t, s.Close(ctx))
	remount := func(flags uintptr) { must(t, unix.Mount("", root, "", unix.MS_REMOUNT|flags, "size=1m")) }
	remount(unix.MS_RDONLY)
	s = open(t, dir, Options{})
	mustRead(t, s, "0123abcd", numbered(1))
	_, err := s.Read(ctx, "00000bad")
	if bad, ok := errors.AsType[*store.DamagedError](err); !ok || bad.Path != s.RecordPath("00000bad") {
		t.Errorf("a damaged record: %v", err)
	}
	for what, err := range map[string]error{
		"Write":  s.Write(ctx, "0123abcd", numbered(2)),
		"Create": s.Create(ctx, "00000001", numbered(2)),
		"Remove": s.Remove(ctx, "0123abcd"),
		"Update": s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return numbered(2), nil }),
	} {
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "is read-only: make it writable") || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	mustRead(t, s, "0123abcd", numbered(1))
	remount(0)
	must(t, s.Write(ctx, "0123abcd", numbered(2)))
	mustRead(t, s, "0123abcd", numbered(2))
}

func TestReadOnlyFolder(t *testing.T) {
	runtime.LockOSThread() // the store has no goroutine of its own: all happens on this thread
	defer runtime.UnlockOSThread()
	dir := dirOn(t, t.TempDir())
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	other := open(t, dir, Options{})
	mustRead(t, other, "0123abcd", numbered(1)) // while the key may be read
	f := folder(dir)
	for _, path := range []string{f.Base, filepath.Dir(f.Dir), f.Dir} {
		must(t, os.Chmod(path, 0o755))
	}
	must(t, os.Chmod(f.Servers(), 0o777)) // there the other user may write
	secret := s.RecordPath("0123abce")
	must(t, os.WriteFile(secret, nil, 0))
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o700)
	for path := range map[string]int{dir: 0, filepath.Dir(dir): 0, filepath.Dir(filepath.Dir(dir)): 0, filepath.Dir(filepath.Dir(filepath.Dir(dir))): 0, filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(dir)))): 0} {
		if fi, err := os.Stat(path); err == nil && path != dir {
			must(t, os.Chmod(path, fi.Mode().Perm()|0o055))
		}
	}
	if os.Getuid() == 0 {
		// As root nothing is forbidden: another user, for this thread's files.
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Skip(err)
		}
		defer unix.SetfsuidRetUid(0)
	}
	hint := "give the user who runs deepwork read and write permission for " + dir
	for what, err := range map[string]error{
		"Write":    s.Write(ctx, "0123abcd", numbered(2)),
		"Create":   s.Create(ctx, "00000001", numbered(2)),
		"Remove":   s.Remove(ctx, "0123abcd"),
		"newcomer": other.Create(ctx, "00000001", numbered(2)),
		"Update":   other.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return numbered(2), nil }),
	} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Read(ctx, "0123abce"); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), hint) {
		t.Errorf("an unreadable record: %v", err)
	}
	if os.Getuid() == 0 {
		// The lock file is another user's: nobody can tell, so nothing is taken.
		if !other.member.Alive(s.server) {
			t.Error("a server of another user looks dead")
		}
		unix.SetfsuidRetUid(0)
	}
	must(t, os.Chmod(dir, 0o700))
	mustRead(t, s, "0123abcd", numbered(1))
	noTemps(t, dir)
	must(t, s.Write(ctx, "0123abcd", numbered(2)))
}

func TestNamedPipes(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	for _, path := range []string{s.RecordPath("0123abce"), s.RecordPath("0123abcf"), s.member.Path(strings.Repeat("f", 16))} {
		must(t, unix.Mkfifo(path, 0o600))
	}
	_, err := s.Read(ctx, "0123abce")
	if bad, ok := errors.AsType[*store.DamagedError](err); !ok || !strings.Contains(bad.Reason, "a named pipe") {
		t.Error(err)
	}
	must(t, s.Write(ctx, "0123abcf", numbered(2)))
	mustRead(t, s, "0123abcf", numbered(2))
	if got := asides(t, s, "damaged_session_0123abc"); len(got) != 2 {
		t.Errorf("set aside %v", got)
	}
	if s.member.Alive(strings.Repeat("f", 16)) || s.member.Describe(strings.Repeat("f", 16)) != "" {
		t.Error("a named pipe is alive")
	}
	must(t, open(t, dir, Options{}).Write(ctx, "00000001", numbered(1)))
}
