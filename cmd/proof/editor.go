package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A way is how an editor saves a file.
type way struct {
	name string
	do   func(path, text string, number int) error
}

// wholeWays never leave a reader without the whole of a save. With roughWays the file is
// away for a moment, or has half of its content.
var (
	wholeWays = []way{{"rename", writeRename}, {"symlink swap", writeLink}}
	roughWays = []way{
		{"truncate and write", writeWhole},
		{"truncate and write in halves", writeHalves},
		{"delete and create", func(path, text string, number int) error {
			return errors.Join(os.Remove(path), writeWhole(path, text, number))
		}},
	}
)

// edit saves the job.yml of all jobs until ctx ends, one job after the other and each
// time in another way. Each job is saved so often.
func (w *world) edit(ctx context.Context, every time.Duration, ways []way) {
	tick := time.NewTicker(every / jobCount)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		job := i % jobCount
		if err := w.save(job, ways[(job+i/jobCount)%len(ways)]); err != nil {
			w.history.fault("the editor", "%v", err)
			return
		}
	}
}

// save writes the next save of a job.
func (w *world) save(job int, how way) error {
	number, text := w.saves.begin(job)
	if err := how.do(w.jobFile(job), text, number); err != nil {
		return fmt.Errorf("saving %s (%s): %w", w.jobFile(job), how.name, err)
	}
	w.saves.end(job)
	return nil
}

func writeWhole(path, text string, _ int) error { return os.WriteFile(path, []byte(text), 0o644) }

// writeHalves writes an incomplete job, and the rest a moment later.
func writeHalves(path, text string, number int) error {
	half := 1 + number*37%strings.Index(text, infoKey)
	if err := os.WriteFile(path, []byte(text[:half]), 0o644); err != nil {
		return err
	}
	time.Sleep(time.Duration(number%5) * time.Millisecond)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text[half:])
	return errors.Join(err, f.Close())
}

func writeRename(path, text string, _ int) error {
	temp := path + ".new"
	return errors.Join(os.WriteFile(temp, []byte(text), 0o644), os.Rename(temp, path))
}

// writeLink replaces the file by a symlink to another one, alternately relative and absolute.
func writeLink(path, text string, number int) error {
	dir, name := filepath.Split(path)
	target := filepath.Join(".saves", fmt.Sprintf("%d-%s", number, name))
	saved, link := filepath.Join(dir, target), filepath.Join(dir, "."+name+".link")
	if number%2 == 0 {
		target = saved
	}
	return errors.Join(os.MkdirAll(filepath.Dir(saved), 0o755), os.WriteFile(saved, []byte(text), 0o644),
		os.Symlink(target, link), os.Rename(link, path))
}
