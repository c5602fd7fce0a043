package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/job"
)

// plainName matches the names of tokens, groups and sources.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// editors have the beginnings of the URLs of files in editors that are known by name.
var editors = map[string]string{"vscode": "vscode://file", "jetbrains": "idea://open?file=", "zed": "zed://file"}

// texts are the rules for texts, by their names in the tags of the model.
var texts = map[string]yamltree.Text{
	"filled":     filled,
	"executor":   checked(job.CheckExecutor),
	"token name": checked(CheckTokenName),
	"token hash": ParseTokenHash,
	"group":      checked(CheckGroup),
	"host":       quoting(HostName),
	"origin":     quoting(Origin),
	"constant": matching(`^[A-Z][A-Z0-9_]*$`,
		"is not a name of upper-case letters, digits and '_', as in CLAUDE_CODE"),
	// Part of a ref, and of a branch name that needs no quotes; see git check-ref-format(1).
	"branch prefix": matching(`^([A-Za-z0-9_][A-Za-z0-9_-]{0,30}[/-]){1,3}$`,
		"is not the beginning of a branch name: expected letters, digits, _ and -, with a / or - at the end, such as "+
			"agents/"),
	// URLs and paths are not names of remotes.
	"remote": matching(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,99})?$`,
		`is not the name of a remote, as git remote lists them; "" means no remote`),
	"prefix": matching(`^[A-Za-z0-9_-]{0,32}$`,
		"is not a prefix: expected at most 32 letters, digits, '_' and '-'"),
	"source name": matching(plainName.String(),
		"is not a source's name: 1 to 64 letters, digits, '.', '_' and '-'"),
	"contain mode":       matching(`^(off|required|outer)$`, "is not one of off, required, outer"),
	"contained host":     containedHost,
	"contained variable": matching(`^[A-Za-z_][A-Za-z0-9_]*$`, "is not the name of an environment variable"),
	"variable":           matching(`^[^=\x00]+$`, "is not the name of an environment variable"),
	"header":             matching("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", "is not the name of an HTTP header"),
	"server url": func(s string) (string, error) {
		if fault := CheckServerURL(s); fault != "" {
			return "", errors.New(fault)
		}
		return s, nil
	},
	// The error does not have the URL, which may be secret.
	"address": func(s string) (string, error) {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", errors.New("is not a URL that begins with http:// or https:// and a host")
		}
		return s, nil
	},
	"line": func(s string) (string, error) {
		if strings.ContainsFunc(s, unicode.IsControl) {
			return "", fmt.Errorf("%s has a control character in it: remove it", yamltree.Quote(s))
		}
		return filled(s)
	},
	"one line": func(s string) (string, error) {
		if strings.ContainsAny(s, "\r\n") {
			return "", errors.New("has a line break in it: remove it")
		}
		return s, nil
	},
	"agent variable": func(s string) (string, error) {
		if strings.EqualFold(s, AttemptEnv) || strings.EqualFold(s, BoardEnv) {
			return "", errors.New("is set by deepwork itself: leave it out")
		}
		if s == "" || strings.ContainsAny(s, "=\x00") {
			return "", fmt.Errorf("%s is not the name of an environment variable", yamltree.Quote(s))
		}
		return s, nil
	},
	"folder name": func(s string) (string, error) {
		if !isFolder(s) {
			return "",
				fmt.Errorf(`%s cannot be the name of a folder: leave out /, \, : and the like, and a dot at either end`,
					yamltree.Quote(s))
		}
		return s, nil
	},
	"local file": func(s string) (string, error) {
		if !filepath.IsLocal(filepath.FromSlash(s)) || filepath.Clean(s) == "." {
			return "",
				fmt.Errorf("%s is not a file of the repository: give a path that is relative to it and stays inside",
					yamltree.Quote(s))
		}
		return s, nil
	},
	"folder": func(s string) (string, error) {
		if !filepath.IsAbs(s) {
			return "", fmt.Errorf("%s is not an absolute path", yamltree.Quote(s))
		}
		return filepath.Clean(s), nil
	},
	"store": func(s string) (string, error) {
		if !strings.HasPrefix(s, "postgres://") && !strings.HasPrefix(s, "postgresql://") {
			return "",
				errors.New("is not the URL of a store: expected one such as " +
					"postgres://user@host/database?sslmode=verify-full")
		}
		return s, nil
	},
	"editor": func(s string) (string, error) {
		s = cmp.Or(editors[s], s)
		scheme, _, ok := strings.Cut(s, "://")
		if !ok || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+-") != "" || scheme == "javascript" ||
			scheme == "data" {
			return "",
				fmt.Errorf("%s does not begin the URL of a file in an editor: expected vscode, jetbrains, zed, or a "+
					"URL such as vscode://file", yamltree.Quote(s))
		}
		return s, nil
	},
	"trace url": func(s string) (string, error) {
		if CheckServerURL(s) != "" || !strings.Contains(s, "{trace_id}") {
			return "",
				fmt.Errorf("%s does not link to a trace: expected a URL such as "+
					"https://traces.example.com/trace/{trace_id}", yamltree.Quote(s))
		}
		return s, nil
	},
	"tool": func(s string) (string, error) {
		if strings.TrimSpace(s) == "" {
			return "",
				errors.New("is empty; expected the name of a tool of the source; leave the key out for the default")
		}
		return s, nil
	},
	"glob": func(s string) (string, error) {
		if _, err := path.Match(s, ""); err != nil || s == "" {
			return "", fmt.Errorf("%s is not a pattern: * matches any text, ? one character, [a-z] one of those",
				yamltree.Quote(s))
		}
		return s, nil
	},
}

// checked returns the rule that accepts the texts for which check returns no error.
func checked(check func(s string) error) yamltree.Text {
	return func(s string) (string, error) { return s, check(s) }
}

// quoting returns the rule for texts that normalize accepts and rewrites; the error quotes the text.
func quoting(normalize func(s string) (string, error)) yamltree.Text {
	return func(s string) (string, error) {
		text, err := normalize(s)
		if err != nil {
			err = fmt.Errorf("%s %w", yamltree.Quote(s), err)
		}
		return text, err
	}
}

// matching returns the rule for texts that match a regular expression; fault is the end of the error for
// others.
func matching(expression, fault string) yamltree.Text {
	form := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(s string) (string, error) {
		if !form().MatchString(s) {
			return "", fmt.Errorf("%s %s", yamltree.Quote(s), fault)
		}
		return s, nil
	}
}

func filled(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("is blank: fill it in")
	}
	return s, nil
}

// isFolder reports whether a text is a valid folder name on every system.
func isFolder(s string) bool {
	return s != "" && s == strings.Trim(s, ". ") && !strings.ContainsAny(s, `/\:*?"<>|`) &&
		!strings.ContainsFunc(s, unicode.IsControl) && filepath.IsLocal(s)
}

// forms returns the forms of values, by their names in the tags of the model; limits is the file that sets
// limits.
func forms(limits string) map[string]yamltree.Form {
	return map[string]yamltree.Form{
		"command":      command,
		"program":      program,
		"notify":       notify,
		"contain":      contain,
		"contain mode": containMode,
		"amount": func(d *yamltree.Decoder, v yamltree.Value, to any) {
			if x, ok := d.Number(v, "an amount of USD", 0, 1e9, "!!int", "!!float"); ok {
				*to.(**Limit) = &Limit{x, limits}
			}
		},
		"count": func(d *yamltree.Decoder, v yamltree.Value, to any) {
			if x, ok := d.Number(v, "a whole number", 0, 1e9, "!!int"); ok {
				*to.(**Limit) = &Limit{x, limits}
			}
		},
		"worker": func(d *yamltree.Decoder, v yamltree.Value, to any) {
			var in writtenWorker
			d.Decode(v, &in)
			*to.(*map[string]string) = in.Projects
		},
		"auto start": autoStart,
		"price":      price,
		"rights": func(d *yamltree.Decoder, v yamltree.Value, to any) {
			d.List(v, "a list of rights", func(_ int, v yamltree.Value) {
				s, ok := d.Text(v, "a right", "")
				right, err := ParseRights(s)
				if ok && err != nil {
					d.Fault(v.At(), "%v", err)
				}
				*to.(*Rights) |= right
			})
		},
	}
}

// command decodes a command line, or the list of its words; an empty one is nil.
func command(d *yamltree.Decoder, v yamltree.Value, to any) {
	words := to.(*[]string)
	const what = "a command line or the list of its words"
	if v.Target().Kind == yaml.SequenceNode {
		*words = nil
		d.List(v, what, func(i int, v yamltree.Value) {
			s, ok := d.Text(v, "a text", "")
			if ok && i == 0 && strings.TrimSpace(s) == "" {
				d.Fault(v.At(), "is empty; expected the program to run")
			}
			*words = append(*words, s)
		})
		return
	}
	line, ok := d.Text(v, what, "")
	if !ok {
		return
	}
	split, err := SplitCommand(line)
	if err == nil && len(split) > 0 && strings.TrimSpace(split[0]) == "" {
		err = errors.New("its first word, the program to run, is empty")
	}
	if err != nil {
		d.Fault(v.At(), "is not a command line: %v", err)
	}
	*words = split
}

// program decodes a nonempty command.
func program(d *yamltree.Decoder, v yamltree.Value, to any) {
	faults := d.Faults()
	command(d, v, to)
	if len(*to.(*[]string)) == 0 && d.Faults() == faults {
		d.Fault(v.At(), "is empty; expected a program with its arguments")
	}
}

// notify decodes a mapping, or a command alone.
func notify(d *yamltree.Decoder, v yamltree.Value, to any) {
	n := Notify{}
	if v.Target().Kind == yaml.MappingNode {
		d.Decode(v, &n)
	} else {
		command(d, v, &n.Command)
	}
	if len(n.Command) > 0 && strings.Contains(n.Command[0], "://") {
		d.Fault(v.At(), "has a URL for a command: write it as {webhook: URL} or {ntfy: URL}")
	}
	*to.(*Notify) = n
}

// autoStart decodes attempts.auto_start; false turns it off.
func autoStart(d *yamltree.Decoder, v yamltree.Value, to any) {
	start := to.(**AutoStart)
	if n := v.Target(); n.ShortTag() == "!!bool" && n.Value == "false" {
		*start = nil
		return
	}

	var in writtenAutoStart
	faults := d.Faults()
	d.Decode(v, &in)
	if d.Faults() > faults {
		return
	}

	name, variant, _ := strings.Cut(in.Executor, ":")
	*start = &AutoStart{name, variant, in.MaxInReview}
}

// A writtenAutoStart is attempts.auto_start as written.
type writtenAutoStart struct {
	Executor    string `yaml:"executor" as:"executor"`
	MaxInReview int    `yaml:"max_in_review" min:"1" max:"10000"`
}

// Tags implements fieldtag.Tagger.
func (writtenAutoStart) Tags() map[string]string {
	const example = `, as in {executor: CLAUDE_CODE, max_in_review: 3}; false turns auto_start off"`
	return map[string]string{
		"Executor":    `add:"the executor of the attempts` + example,
		"MaxInReview": `add:"how many tasks may wait for a review` + example,
	}
}

// A writtenWorker has the projects of a worker, as written.
type writtenWorker struct {
	Projects map[string]string `yaml:"projects" each:"folder" is:"a mapping of the names of projects to folders"`
}

// A writtenPrice has the prices of a model, as written.
type writtenPrice struct {
	Input      float64  `yaml:"input" max:"1e6" is:"the USD per million tokens,"`
	Output     float64  `yaml:"output" max:"1e6" is:"the USD per million tokens,"`
	CacheRead  *float64 `yaml:"cache_read" max:"1e6" is:"the USD per million tokens,"`
	CacheWrite *float64 `yaml:"cache_write" max:"1e6" is:"the USD per million tokens,"`
}

// Tags implements fieldtag.Tagger.
func (writtenPrice) Tags() map[string]string {
	const example = `add:"the USD per million tokens, as in {input: 3, output: 15}"`
	return map[string]string{"Input": example, "Output": example}
}

// price decodes the prices of a model.
func price(d *yamltree.Decoder, v yamltree.Value, to any) {
	var in writtenPrice
	d.Decode(v, &in)
	p := Price{Input: in.Input, CacheRead: in.Input, CacheWrite: in.Input, Output: in.Output}
	if in.CacheRead != nil {
		p.CacheRead = *in.CacheRead
	}
	if in.CacheWrite != nil {
		p.CacheWrite = *in.CacheWrite
	}
	*to.(*Price) = p
}

// operators are words that mean something only to a shell; a command would get them as meaningless arguments.
var operators = []string{"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"}

// SplitCommand splits a command line into words like a POSIX shell, but without variables, patterns and
// operators. Single quotes keep everything; double quotes keep everything except a backslash before ", \, $,
// ` or a line break; elsewhere a backslash keeps the next character. A blank line has no words. An error says
// what is wrong with the line.
func SplitCommand(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool // true also for an empty word, from quotes
		plain  = true
		quote  byte // the open quote, or 0
	)

	if strings.IndexByte(line, 0) >= 0 {
		return nil, errors.New("it has a NUL byte in it")
	}
	for i := 0; i <= len(line); i++ {
		c := byte('\n') // ends the last word
		if i < len(line) {
			c = line[i]
		} else if quote != 0 {
			return nil, fmt.Errorf("a %s quote is not closed", map[byte]string{'\'': "single", '"': "double"}[quote])
		}

		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && (quote == 0 ||
			quote == '"' && i+1 < len(line) && strings.IndexByte("\"\\$`\n", line[i+1]) >= 0):
			i++
			if i == len(line) {
				return nil, errors.New(`it ends with a backslash: write \\ for one`)
			}
			if line[i] != '\n' { // a backslash joins two lines
				word.WriteByte(line[i])
				inWord, plain = true, false
			}
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord, plain = c, true, false
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if !inWord {
				continue
			}

			if plain && slices.Contains(operators, word.String()) {
				return nil,
					fmt.Errorf("no shell runs the command, so %s has no meaning: quote it, or put the command line "+
						"into a script", word.String())
			}
			words = append(words, word.String())
			word.Reset()
			inWord, plain = false, true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	return words, nil
}
