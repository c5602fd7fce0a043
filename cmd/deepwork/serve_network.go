package main

import (
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// networkFlags are the flags of serve for http and sse.
type networkFlags struct {
	host      string
	port      int
	tokenFile string
	tlsCert   string
	tlsKey    string
	hosts     []string
	origins   []string
	readOnly  bool
}

// networkOnly lists their names.
var networkOnly = []string{"host", "port", "token-file", "tls-cert", "tls-key", "allowed-host", "allowed-origin", "read-only"}

func (f *networkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.host, "host", web.DefaultHost, "address to listen on; if it is not loopback, callers need a token")
	flags.IntVar(&f.port, "port", 8000, "port to listen on; 0 picks a free one")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` of lines name:sha256[:group[:rights]], each a token of a caller; read again when it changes")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM `file` of the certificate chain, for https")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM `file` of its key")
	flags.StringSliceVar(&f.hosts, "allowed-host", nil, "`name` to accept as Host, in addition to the address of the server; needs tokens")
	flags.StringSliceVar(&f.origins, "allowed-origin", nil, "`origin` of web pages that may call the server, such as https://app.example.com")
	flags.BoolVar(&f.readOnly, "read-only", false, "the pages at / cannot change anything (http); agents are not affected")
}

// check refuses flags that cannot be combined.
func (f *networkFlags) check(cmd *cobra.Command, over string) error {
	given := cmd.Flags().Changed
	for _, name := range networkOnly {
		if over == transportStdio && given(name) {
			return usagef(cmd, "--%s goes with a network transport; leave it out with --transport %s", name, over)
		}
	}
	for i, name := range f.hosts {
		var err error
		if f.hosts[i], err = config.HostName(name); err != nil {
			return usagef(cmd, "--allowed-host %q %v", name, err)
		}
	}
	for i, name := range f.origins {
		var err error
		if f.origins[i], err = config.Origin(name); err != nil {
			return usagef(cmd, "--allowed-origin %q %v", name, err)
		}
	}
	switch {
	case f.readOnly && over != web.HTTP:
		return usagef(cmd, "--read-only is about the pages at /, which only --transport %s has", web.HTTP)
	case f.port < 0 || f.port > 65535:
		return usagef(cmd, "--port %d is not a port: it is 0 to 65535", f.port)
	case strings.TrimSpace(f.host) == "":
		return usagef(cmd, "--host is empty; give an address, or 0.0.0.0 for all of this machine's")
	case given("token-file") && f.tokenFile == "":
		return usagef(cmd, "--token-file is empty; give the path of a file")
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return usagef(cmd, "--tls-cert and --tls-key go together; give both or neither")
	}
	return nil
}

func (f *networkFlags) options(over string) web.Options {
	return web.Options{
		Transport: over, Host: f.host, Port: f.port,
		TokenFile: f.tokenFile, TLSCert: f.tlsCert, TLSKey: f.tlsKey,
		AllowedHosts: f.hosts, AllowedOrigins: f.origins, ReadOnly: f.readOnly,
	}
}
