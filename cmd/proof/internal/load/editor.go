package load

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// saveEvery is how often an editor saves each job file.
const saveEvery = 100 * time.Millisecond

// A way is how an editor saves a file.
type way struct {
	name string
	// rough: the file is away for a moment, or has half of its content.
	rough bool
	do    func(path, text string, number int) error
}

// ways are how a job.yml is saved, in turns; an append is made by the editor.
var ways = []way{
	{"truncate and write", true, writeWhole},
	{"truncate and write in halves", true, writeHalves},
	{"rename", false, writeRename},
	{"delete and create", true, writeAnew},
	{"append", false, nil},
	{"symlink swap", false, writeLink},
}

// An editor saves the jobs of a project again and again.
type editor struct {
	root string
	book *book
	wrong
}

func jobDir(root string, job int) string {
	return filepath.Join(root, ".deepwork", "jobs", jobName(job))
}

// layOut writes the first save of every file of every job.
func (e *editor) layOut() error {
	for job := range jobCount {
		if err := os.MkdirAll(jobDir(e.root, job), 0o755); err != nil {
			return fmt.Errorf("laying out the jobs: %w", err)
		}
		for file := range e.book.files[job] {
			if err := e.save(job, file, way{do: writeWhole}, 0); err != nil {
				return fmt.Errorf("laying out the jobs: %w", err)
			}
		}
	}
	return nil
}

// save writes the next save of a file; base other than 0 appends to that one.
func (e *editor) save(job, file int, w way, base int) error {
	name := filepath.Base(e.book.fileName(job, file))
	path := filepath.Join(jobDir(e.root, job), name)
	content := func(number int) string {
		switch {
		case file > 0:
			return instructionsText(jobName(job), strings.TrimSuffix(name, ".md"), number)
		case base > 0:
			text := jobText(jobName(job), e.book.group, base)
			for n := base + 1; n <= number; n++ {
				text += appendedText(n)
			}
			return text
		}
		return jobText(jobName(job), e.book.group, number)
	}
	number, text := e.book.begin(job, file, base, content, w.rough)
	if base > 0 {
		w.do = func(path, _ string, number int) error { return writeMore(path, appendedText(number)) }
	}
	if err := w.do(path, text, number); err != nil {
		return fmt.Errorf("saving %s (%s): %w", path, w.name, err)
	}
	e.book.end(job, file)
	return nil
}

// edit saves the files of one job until ctx ends: job.yml each time in another
// way, and the instructions in turns, by rename and by symlink: of half a text
// nobody could tell that it is one.
func (e *editor) edit(ctx context.Context, job int) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	base := 1
	for n := job; ; n++ { // the jobs are not all saved in the same way at once
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w := ways[n%len(ways)]
		var err error
		if w.do == nil {
			err = e.save(job, 0, w, base)
		} else {
			base = e.book.next(job)
			err = e.save(job, 0, w, 0)
		}
		if err == nil {
			file := 1 + n%(len(e.book.files[job])-1)
			err = e.save(job, file, ways[2+3*(n/len(ways)%2)], 0)
		}
		if err != nil {
			e.wrong.add("the editor", err.Error())
			return
		}
	}
}

// next is the number of the next save of a job.yml.
func (b *book) next(job int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.files[job][0].saves) + 1
}

func writeWhole(path, text string, _ int) error { return os.WriteFile(path, []byte(text), 0o644) }

// writeHalves writes what is no valid job yet, and the rest a moment later.
func writeHalves(path, text string, number int) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	half := 1 + number*37%strings.Index(text, infoKey)
	if _, err := f.WriteString(text[:half]); err != nil {
		return err
	}
	time.Sleep(time.Duration(number%5) * time.Millisecond)
	_, err = f.WriteString(text[half:])
	return err
}

func writeRename(path, text string, _ int) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func writeAnew(path, text string, _ int) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// writeMore appends, by one write.
func writeMore(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// writeLink makes the file a symlink to another one, in turns a relative and an
// absolute link; where links cannot be made it is a rename.
func writeLink(path, text string, number int) error {
	dir, name := filepath.Split(path)
	saves := filepath.Join(dir, ".saves")
	if err := os.MkdirAll(saves, 0o755); err != nil {
		return err
	}
	// Two are enough: the one that is led to is never written.
	to := filepath.Join(saves, fmt.Sprintf("%d-%s", number%2, name))
	if led, err := os.Readlink(path); err == nil && filepath.Base(led) == filepath.Base(to) {
		to = filepath.Join(saves, fmt.Sprintf("%d-%s", 1-number%2, name))
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		return err
	}
	target := to
	if number%4 < 2 {
		target = filepath.Join(".saves", filepath.Base(to))
	}
	link := filepath.Join(dir, "."+name+".link")
	if err := os.Symlink(target, link); err != nil {
		return writeRename(path, text, number)
	}
	return os.Rename(link, path)
}
