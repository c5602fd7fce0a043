package postgres

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// parse returns the configuration of connections to a URL, and the schema. Its errors do not contain the URL,
// which may have a password.
func parse(raw string) (*pgx.ConnConfig, string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, "",
			errors.New("the URL of the store is not valid: expected postgres://user:password@host/database, with " +
				"special characters of the password percent-encoded")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, "", errors.New("the parameters of the URL of the store are not valid")
	}

	schema := "deepwork"
	if q.Has("schema") {
		schema = q.Get("schema")
	}
	if !regexp.MustCompile(`^[a-z_][a-z0-9_]{0,50}$`).MatchString(schema) || strings.HasPrefix(schema, "pg_") {
		return nil, "",
			fmt.Errorf("%.60q is not a schema of the store: expected lower-case letters, digits and _, at most 51",
				schema)
	}

	q.Del("schema")
	u.RawQuery = q.Encode()
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		if why := errors.Unwrap(err); why != nil {
			return nil, "", fmt.Errorf("the URL of the store is not valid: %w", why)
		}
		return nil, "", errors.New("the URL of the store is not valid")
	}
	hosts := []*pgconn.FallbackConfig{{Host: config.Host, TLSConfig: config.TLSConfig}}
	for _, h := range append(hosts, config.Fallbacks...) {
		if !onThisMachine(h.Host) &&
			(h.TLSConfig == nil || h.TLSConfig.InsecureSkipVerify || h.TLSConfig.ServerName == "") {
			return nil, "",
				fmt.Errorf("the connection to %s would not be safe: add sslmode=verify-full to the URL of the store "+
					"(and sslrootcert=FILE if the system does not know its certificate authority)", h.Host)
		}
	}
	config.RuntimeParams = nil // PgBouncer refuses parameters that it does not know
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	config.OnNotice = nil
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	return config, schema, nil
}

// onThisMachine reports whether a host is a socket or a loopback address.
func onThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" ||
		ip != nil && ip.IsLoopback()
}

// location describes a database without a user or a password.
func location(c *pgx.ConnConfig, schema string) string {
	host := c.Host
	if !strings.HasPrefix(host, "/") && !strings.HasPrefix(host, "@") {
		host = net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
	}
	return fmt.Sprintf("the database %s at %s, schema %s", c.Database, host, schema)
}
