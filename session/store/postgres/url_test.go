package postgres

import (
	"strings"
	"testing"
)

func TestURLs(t *testing.T) {
	t.Setenv("PGAPPNAME", "x")
	for raw, want := range map[string]string{
		"postgres://u:secret@localhost/db":                                          "the database db at localhost:5432, schema deepwork",
		"postgresql://u@127.0.0.1:99/db?schema=team_1&application_name=x":           "the database db at 127.0.0.1:99, schema team_1",
		"postgres://u@/db?host=/run/pg&schema=x":                                    "the database db at /run/pg, schema x",
		"postgres://u:secret@db.example.com/db?sslmode=verify-full":                 "the database db at db.example.com:5432, schema deepwork",
		"postgres://u:secret@db.example.com/db":                                     "error: sslmode=verify-full",
		"postgres://u:secret@db.example.com/db?sslmode=verify-ca":                   "error: sslmode=verify-full",
		"postgres://u:secret@db.example.com/db?sslmode=require":                     "error: sslmode=verify-full",
		"postgres://u:secret@localhost,db.example.com/db?sslmode=prefer":            "error: sslmode=verify-full",
		"postgres://u:secret@localhost/db?schema=Team":                              "error: lower-case",
		"postgres://u:secret@localhost/db?schema=x;drop":                            "error: ",
		"postgres://u:secret@localhost/db?schema=":                                  "error: lower-case",
		"postgres://u:secret@localhost/db?schema=pg_catalog":                        "error: lower-case",
		"mysql://u:secret@localhost/db":                                             "error: expected postgres://",
		"postgres://u:secret%zz@localhost/db":                                       "error: percent-encoded",
		"postgres://u:secret@localhost:port/db":                                     "error: not valid",
		"host=localhost password=secret":                                            "error: expected postgres://",
		"postgres://u:secret@localhost/db?sslmode=nothing&schema=x&password=secret": "error: not valid",
	} {
		config, schema, err := parse(raw)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = location(config, schema)
			if len(config.RuntimeParams) > 0 {
				t.Errorf("%s: parameters for the server: %v", raw, config.RuntimeParams)
			}
		}
		part, refused := strings.CutPrefix(want, "error: ")
		if refused != (err != nil) || !strings.Contains(got, part) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s; want %s", raw, got, want)
		}
	}
}

func TestRepositories(t *testing.T) {
	same := []string{"https://me:token@GitHub.com/team/shop.git", "git@github.com:team/shop.git", "ssh://git@github.com:22/team/shop", "github.com:team/shop/"}
	for _, remote := range same {
		if got := (Repository{Remote: remote}).normalized().Remote; got != "github.com/team/shop" {
			t.Errorf("%s: %q", remote, got)
		}
	}
	for remote, want := range map[string]string{"": "", "/srv/git/shop.git": "", "file:///srv/git/shop": "", `C:\git\shop`: "", "../shop": "", "host:a/b": "host/a/b"} {
		if got := (Repository{Remote: remote}).normalized().Remote; got != want {
			t.Errorf("%s: %q, want %q", remote, got, want)
		}
	}
}

func TestNamesThatAreNoText(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Project = "sh\xffop" },
		func(o *Options) { o.Project = "shop\x00" },
		func(o *Options) { o.Root = "/srv/\xff" },
	} {
		o := options("postgres://u:secret@localhost/db")
		change(&o)
		if s, err := Open(o); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("opened %q in %q with %v", o.Project, o.Root, err)
			s.Close(t.Context())
		}
	}
}
