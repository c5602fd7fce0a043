package job

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
)

// BeforeName is the name of the file that keeps the old content of a converted job.yml. Nothing reads it.
const BeforeName = FileName + ".before"

// Write writes a conversion into the folder of its job. It replaces job.yml last, after writing the old
// content to a file beside it, whose name it returns, and the changelog to CHANGELOG.md. If the program is
// killed before that, the job is unchanged and can be converted again. It fails if job.yml is a link, or has
// changed since the conversion.
func (c *Conversion) Write(dir string) (before string, err error) {
	file := filepath.Join(dir, FileName)
	info, err := os.Lstat(file)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is %s, not a file: convert the job in the folder where the file is", file,
			durable.Kind(info.Mode()))
	}
	if now, _, err := durable.Read(file, MaxBytes); err != nil {
		return "", err
	} else if !bytes.Equal(now, c.Before) {
		return "", fmt.Errorf("%s has changed in the meantime: convert it again", file)
	}

	put := func(path string, data []byte) error {
		return durable.Disk{}.Put(path, data, durable.PutOptions{Mode: info.Mode().Perm()})
	}

	before = filepath.Join(dir, BeforeName)
	for n := 2; ; n++ {
		kept, _, err := durable.Read(before, MaxBytes)
		if errors.Is(err, fs.ErrNotExist) {
			if err := put(before, c.Before); err != nil {
				return "", err
			}
			break
		}
		if err == nil && bytes.Equal(kept, c.Before) {
			break // left by a killed conversion
		}
		before = filepath.Join(dir, fmt.Sprintf("%s%d", BeforeName, n))
	}
	if c.Changelog != "" {
		if err := c.writeChangelog(filepath.Join(dir, "CHANGELOG.md"), put); err != nil {
			return "", err
		}
	}

	return before, put(file, c.Source)
}

// maxChangelog is the maximum size of a changelog that is added to.
const maxChangelog = 16 << 20

// writeChangelog writes the changelog, at the end of one that exists, unless it has it already.
func (c *Conversion) writeChangelog(file string, put func(string, []byte) error) error {
	there, _, err := durable.Read(file, maxChangelog)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return put(file, []byte(c.Changelog))
	case err != nil:
		return err
	}

	entries := strings.TrimPrefix(c.Changelog, changelogTitle)
	if strings.Contains(string(there), strings.TrimSpace(entries)) {
		return nil
	}
	return put(file, []byte(strings.TrimRight(string(there), "\n")+"\n"+entries))
}
