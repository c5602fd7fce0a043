// Package notify sends messages to the user, in the ways that the key notify of their own config names.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/catalog/config"
)

// How long a way may take to send a message.
const (
	programTime = 30 * time.Second
	requestTime = 10 * time.Second
)

// A Message is a notification of one thing that needs a person.
type Message struct {
	Title string // one line
	Text  string
	Link  string // URL of its page; "" means none
	Item  []byte // what a command gets on stdin
}

// A Way is a configured way to notify the user.
type Way struct {
	Name string // its key in the config
	Via  string // the program or host; never the URL, which may be secret
	// Send sends a message. It blocks for at most half a minute. Its error does not have the URL.
	Send func(context.Context, *Message) error
}

// Ways returns the configured ways.
func Ways(c config.Notify) (all []Way) {
	if len(c.Command) > 0 {
		all = append(all, Way{"command", c.Command[0], func(ctx context.Context, m *Message) error {
			return run(ctx, m.Item, c.Command...)
		}})
	}
	if c.Desktop && runtime.GOOS == "darwin" {
		all = append(all, Way{"desktop", "osascript", func(ctx context.Context, m *Message) error {
			return run(ctx, nil, "osascript", "-e", "on run a", "-e",
				"display notification (item 2 of a) with title (item 1 of a)", "-e", "end run", m.Title, m.linked())
		}})
	} else if c.Desktop {
		all = append(all, Way{"desktop", "notify-send", func(ctx context.Context, m *Message) error {
			return run(ctx, nil, "notify-send", "--app-name=deepwork", "--", m.Title, escape.Replace(m.linked()))
		}})
	}
	if c.Webhook != "" {
		all = append(all, over("webhook", c.Webhook, webhook))
	}
	if c.Ntfy != "" {
		all = append(all, over("ntfy", c.Ntfy, ntfy))
	}
	return all
}

// linked returns the text and the link.
func (m *Message) linked() string { return strings.TrimSpace(m.Text + "\n" + m.Link) }

// escape keeps a text from having markup, for Slack and for the system's notifications.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// run runs a program in the user's home folder, so that nothing in the project can influence it.
func run(ctx context.Context, stdin []byte, command ...string) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	_, err := process.Run(ctx, process.Spec{Command: command, Dir: process.Home(), Stdin: stdin})
	return err
}

// webhook sets the header and returns the body of a request. Slack and Mattermost read the text, and Discord the
// content, in which nothing is a mention.
func webhook(m *Message, header http.Header) string {
	text := m.Title + "\n" + m.linked()
	header.Set("Content-Type", "application/json")
	body, _ := json.Marshal(map[string]any{ // texts have no errors
		"text":             escape.Replace(text),
		"content":          text,
		"allowed_mentions": map[string][]string{"parse": {}},
	})
	return string(body)
}

// ntfy sets the header and returns the body of a request.
func ntfy(m *Message, header http.Header) string {
	header.Set("Title", mime.QEncoding.Encode("utf-8", m.Title))
	if m.Link != "" {
		header.Set("Click", m.Link)
	}
	return m.Text
}

// over returns the way to post to a URL what write writes.
func over(name, address string, write func(m *Message, header http.Header) (body string)) Way {
	u, _ := url.Parse(address) // the config has checked it
	return Way{name, u.Host, func(ctx context.Context, m *Message) error {
		ctx, cancel := context.WithTimeout(ctx, requestTime)
		defer cancel()
		header := http.Header{}
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(write(m, header)))
		r.Header = header
		r.Close = true
		if u.User != nil {
			password, _ := u.User.Password()
			r.SetBasicAuth(u.User.Username(), password)
		}

		// Unlike a client, a transport follows no redirects, and its errors do not have the URL.
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return fmt.Errorf("sending to %s: %w", u.Host, err)
		}
		defer answer.Body.Close()
		if answer.StatusCode/100 != 2 {
			return fmt.Errorf("%s answered %d %s", u.Host, answer.StatusCode, http.StatusText(answer.StatusCode))
		}
		return nil
	}}
}
