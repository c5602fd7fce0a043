package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// operators are the words with a meaning in a shell only; a command would get them as meaningless
// arguments.
var operators = []string{"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"}

// SplitCommand splits a command line into words as a POSIX shell does, without its variables,
// patterns and operators. Single quotes keep everything; double quotes keep all but a backslash
// before ", \, $, ` or a line break; elsewhere a backslash keeps the next character. A blank line
// has no words. An error describes the fault of the line.
func SplitCommand(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool // also for an empty one, from quotes
		plain  = true
		quote  byte // the open one, or 0
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
		case c == '\\' && (quote == 0 || quote == '"' && i+1 < len(line) && strings.IndexByte("\"\\$`\n", line[i+1]) >= 0):
			if i++; i == len(line) {
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
				return nil, fmt.Errorf("no shell runs the command, so %s has no meaning: quote it, or put the command line into a script", word.String())
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
