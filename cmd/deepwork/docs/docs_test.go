package docs

import (
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/show"
)

// At a terminal every topic fits the width, except for code and words that are longer, and has no marks of Markdown.
func TestTopicsFitTheTerminal(t *testing.T) {
	const width = 72
	topics := Topics()
	testkit.Need(t, len(topics) >= 30, "only %d topics", len(topics))

	for _, topic := range topics {
		text := topic.ForTerminal(width)
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "    ") {
				continue
			}
			testkit.True(t, show.Columns(line) <= width || len(strings.Fields(line)) <= 2, "%s: %d columns: %q",
				topic.Name, show.Columns(line), line)
			testkit.True(t, !strings.Contains(line, "]("), "%s: Markdown is left in %q", topic.Name, line)
			testkit.True(t, !strings.HasPrefix(line, "#"), "%s: Markdown is left in %q", topic.Name, line)
			testkit.True(t, !strings.HasPrefix(line, "|"), "%s: Markdown is left in %q", topic.Name, line)
			testkit.True(t, !strings.Contains(line, "**"), "%s: Markdown is left in %q", topic.Name, line)
		}
		testkit.True(t, topic.Title != "", "%s: the title is %q, and the first sentence %q", topic.Name, topic.Title,
			topic.First)
		testkit.Need(t, len(topic.First) >= 10, "%s: the title is %q, and the first sentence %q", topic.Name,
			topic.Title, topic.First)
		testkit.True(t, len(topic.First) <= 160, "%s: the title is %q, and the first sentence %q", topic.Name,
			topic.Title, topic.First)
	}
}

func TestForTerminal(t *testing.T) {
	topic := Topic{
		Name: "howto/x",
		Text: "# A `b`\n\nSee [the\nother](../tutorials/y.md#z), [that](#here) and **this**:\n\n| a | b " +
			"|\n|---|---|\n| c \\| d | e |\n\n1. one\n   and a half\n2. two\n\n```sh\n$ x  **y**\n```\n",
	}
	testkit.Equal(t, topic.ForTerminal(40),
		"A B\n\nSee the other (tutorials/y), that and\nthis:\n\nA – B\n- c | d – e\n\n1. one and a half\n2. two\n\n  "+
			"  $ x  **y**\n")
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"glossary":       "glossary",
		"Proxy":          "howto/proxy",
		"tutorials/run":  "tutorials/run",
		"howto/proxy.md": "howto/proxy",
	} {
		found, _ := Find(name)
		testkit.True(t, found != nil && found.Name == want, "%s: found %v", name, found)
	}
	found, near := Find("approv")
	testkit.True(t, found == nil && slices.Contains(near, "tutorials/approval"), "approv: found %v, near it %q",
		found, near)
	found, near = Find("nonsense")
	testkit.True(t, found == nil && near == nil, "nonsense: found %v, near it %q", found, near)
}
