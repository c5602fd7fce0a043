package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A way is how an editor saves a file.
type way struct {
	name string
	do   func(path, text string, number int) error
}

// wholeWays always leave readers a whole save. With roughWays the file is missing, or half written, for a moment.
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

// edit saves the job.yml of all jobs until ctx ends, one job after the other, each time in another way, and each job at
// this interval.
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

const wrongDefinition = "a wrong definition"

// saves are all saves of all jobs' job.yml, numbered from 1: what was ever written, and when a call could have read it.
// Its methods may be called by many goroutines.
type saves struct {
	mu           sync.Mutex
	begun, ended [jobCount]int  // the newest saves
	hashes       map[string]int // the saves, by hex SHA-256
}

// begin records a save before it is written, and returns its number and the text to write.
func (b *saves) begin(job int) (number int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[job]++
	number = b.begun[job]
	text = jobText(jobName(job), number)
	sum := sha256.Sum256([]byte(text))
	b.hashes[hex.EncodeToString(sum[:])] = number
	return number, text
}

// end records the end of a save: later calls must see it.
func (b *saves) end(job int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[job] = b.begun[job]
}

// last returns the last save of a job that has ended, which a call that begins now must
// see at least.
func (b *saves) last(job int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended[job]
}

// step checks that a reply's texts of a step are all from one save of the job, which it returns, and that this is no
// older than the last save that had ended when the call began.
func (b *saves) step(job, last int, info stepInfo) (save int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, save := jobName(job), saveIn(info.Info)
	switch {
	case info.Info != infoText(save):
		err = fmt.Errorf("%s: the common info is of no save: %.300q", name, info.Info)
	case len(info.Outputs) != len(outputNames) || info.Outputs[0].Name != "report" ||
		info.Outputs[0].Description != outputText(info.Step, save):
		err = fmt.Errorf("%s: the outputs of %s are not those of save %d: %+v", name, info.Step, save, info.Outputs)
	case !isInstructions(name, info.Step, info.Instructions):
		err = fmt.Errorf("%s: the instructions of %s are other ones: %.300q", name, info.Step, info.Instructions)
	case save < max(last, 1) || save > b.begun[job]:
		err = fmt.Errorf("%s: save %d was served to a call that began after save %d had ended, of %d", name, save, last,
			b.begun[job])
	}

	return save, err
}

// of finds the save of a job.yml by its hash; 0 means never written.
func (b *saves) of(hash string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hashes[hash]
}

// total returns the number of saves.
func (b *saves) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hashes)
}
