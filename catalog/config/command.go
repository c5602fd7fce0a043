package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// operators are the words that mean something to a shell alone, and to which a
// command would get a meaningless argument.
var operators = []string{"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"}

// SplitCommand splits a command line into its words as a POSIX shell does, and
// does nothing else that a shell does: no variables, patterns or operators.
// Single quotes keep everything; double quotes keep all but a backslash before
// ", \, $, ` or a line break; elsewhere a backslash keeps the next character. A
// line of blanks has no words. An error says what is wrong with the line.
func SplitCommand(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool // also an empty one, from quotes
		plain  = true
	)
	end := func() error {
		if !inWord {
			return nil
		}
		if plain && slices.Contains(operators, word.String()) {
			return fmt.Errorf("no shell runs the command, so %s has no meaning: quote it, or put the command line into a script", word.String())
		}
		words = append(words, word.String())
		word.Reset()
		inWord, plain = false, true
		return nil
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n', '\r':
			if err := end(); err != nil {
				return nil, err
			}
		case '\\':
			if i+1 == len(line) {
				return nil, errors.New(`it ends with a backslash: write \\ for one`)
			}
			i++
			if line[i] != '\n' { // which joins two lines
				word.WriteByte(line[i])
				inWord, plain = true, false
			}
		case '\'':
			n := strings.IndexByte(line[i+1:], '\'')
			if n < 0 {
				return nil, errors.New("a single quote is not closed")
			}
			word.WriteString(line[i+1 : i+1+n])
			inWord, plain = true, false
			i += 1 + n
		case '"':
			n, err := doubleQuoted(line[i+1:], &word)
			if err != nil {
				return nil, err
			}
			inWord, plain = true, false
			i += n
		case 0:
			return nil, errors.New("it has a NUL byte in it")
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return words, nil
}

// doubleQuoted writes the text before the closing quote, and returns how long
// that is with the quote.
func doubleQuoted(rest string, word *strings.Builder) (int, error) {
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return i + 1, nil
		case c == 0:
			return 0, errors.New("it has a NUL byte in it")
		case c == '\\' && i+1 < len(rest) && strings.IndexByte("\"\\$`\n", rest[i+1]) >= 0:
			i++
			if rest[i] != '\n' {
				word.WriteByte(rest[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, errors.New("a double quote is not closed")
}
