package local

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
)

// writers runs b.N calls of write, shared by n goroutines, each with a number
// of its own.
func writers(b *testing.B, n int, write func(writer, turn int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range n {
		wg.Go(func() {
			for turn := 0; left.Add(-1) >= 0; turn++ {
				if err := write(w, turn); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkWrite is the durable write of a 4 KB record, beside the bare thing:
// write, fsync, rename, fsync of the directory.
func BenchmarkWrite(b *testing.B) {
	body := sample(4096)
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("store/%d", n), func(b *testing.B) {
			s, err := Open(folder(newDir(b)), Options{})
			testkit.Must(b, err)
			defer s.Close(ctx)
			testkit.Must(b, s.Create(ctx, "00000000", body))
			writers(b, n, func(w, turn int) error {
				return s.Write(ctx, fmt.Sprintf("%08x", w), body)
			})
		})
		b.Run(fmt.Sprintf("bare/%d", n), func(b *testing.B) {
			dir := b.TempDir()
			sealed, _, err := durable.Seal("a", body, folder(newDir(b)))
			testkit.Must(b, err)
			writers(b, n, func(w, turn int) error {
				temp := filepath.Join(dir, fmt.Sprintf("temp_%d_%d", w, turn))
				f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				if _, err := f.Write(sealed); err != nil {
					return err
				}
				if err := f.Sync(); err != nil {
					return err
				}
				if err := f.Close(); err != nil {
					return err
				}
				if err := os.Rename(temp, filepath.Join(dir, fmt.Sprintf("record_%d", w))); err != nil {
					return err
				}
				return durable.Disk{}.SyncFolder(dir)
			})
		})
	}
}

// BenchmarkWriteNoSync is what a write costs that is not the disk's waiting.
func BenchmarkWriteNoSync(b *testing.B) {
	s, err := Open(folder(newDir(b)), Options{NoSync: true})
	testkit.Must(b, err)
	defer s.Close(ctx)
	body := sample(4096)
	for b.Loop() {
		testkit.Must(b, s.Write(ctx, "00000000", body))
	}
}

// BenchmarkRead reads and verifies a record.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			s, err := Open(folder(newDir(b)), Options{NoSync: true})
			testkit.Must(b, err)
			defer s.Close(ctx)
			testkit.Must(b, s.Write(ctx, "00000000", sample(size)))
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := s.Read(ctx, "00000000"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkList walks a folder of 100,000 records.
func BenchmarkList(b *testing.B) {
	dir := newDir(b)
	testkit.Must(b, os.MkdirAll(dir, 0o700))
	const records = 100_000
	for n := range records {
		testkit.Must(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("session_%08x.json", n)), nil, 0o600))
	}
	s, err := Open(folder(dir), Options{ReadOnly: true})
	testkit.Must(b, err)
	b.Run("List", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range s.List(ctx) {
				testkit.Must(b, err)
				n++
			}
			if n != records {
				b.Fatalf("%d records", n)
			}
		}
	})
	b.Run("IDs", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range s.List(ctx) {
				testkit.Must(b, err)
				n++
			}
			if n != records {
				b.Fatalf("%d records", n)
			}
		}
	})
}
