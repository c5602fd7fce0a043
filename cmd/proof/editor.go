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
	name  string
	rough bool // the file is away for a moment, or has half of its content
	do    func(path, text string, number int) error
}

// ways are how a job.yml is saved, in turns.
var ways = []way{
	{"truncate and write", true, writeWhole},
	{"truncate and write in halves", true, writeHalves},
	{"rename", false, writeRename},
	{"symlink swap", false, writeLink},
	{"delete and create", true, func(path, text string, number int) error {
		return errors.Join(os.Remove(path), writeWhole(path, text, number))
	}},
}

// edit saves the files of all jobs until ctx ends, one job after the other: job.yml each
// time in another way, and the instructions in turns, by rename and by symlink: of half a
// text nobody could tell that it is one. Each job is saved so often.
func (w *world) edit(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every / jobCount)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		job := i % jobCount
		n := job + i/jobCount
		err := w.save(job, 0, ways[n%len(ways)])
		if err == nil {
			err = w.save(job, 1+n%(len(w.saves.names)-1), ways[2+n/len(ways)%2])
		}
		if err != nil {
			w.history.fault("the editor", "%v", err)
			return
		}
	}
}

// writeJobs writes the first save of every file of every job.
func (w *world) writeJobs() error {
	for job := range jobCount {
		if err := os.MkdirAll(jobDir(w.root, jobName(job)), 0o755); err != nil {
			return err
		}
		for file := range w.saves.names {
			if err := w.save(job, file, ways[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// save writes the next save of a file.
func (w *world) save(job, file int, how way) error {
	path := filepath.Join(jobDir(w.root, jobName(job)), w.saves.names[file])
	number, text := w.saves.begin(job, file, how.rough)
	if err := how.do(path, text, number); err != nil {
		return fmt.Errorf("saving %s (%s): %w", path, how.name, err)
	}
	w.saves.end(job, file)
	return nil
}

func writeWhole(path, text string, _ int) error { return os.WriteFile(path, []byte(text), 0o644) }

// writeHalves writes what is no valid job yet, and the rest a moment later.
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

// writeLink makes the file a symlink to another one, in turns a relative and an
// absolute link.
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
