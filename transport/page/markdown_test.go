package page

import (
	"testing"

	"deepwork/actor/testkit"
)

func TestMarkdownRunsAndLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a *b* `c`":                               "<p>a <em>b</em> <code>c</code></p>\n",
		"# A b":                                   `<h1 id="h-a-b">A b</h1>` + "\n",
		"[a](b.md#c)":                             `<p><a href="b.md#h-c">a</a></p>` + "\n",
		"[a](https://example.com)":                `<p><a href="https://example.com" rel="noopener noreferrer">a</a></p>` + "\n",
		"<https://example.com>":                   `<p><a href="https://example.com" rel="noopener noreferrer">https://example.com</a></p>` + "\n",
		"[*a*](javascript:alert(1)) b":            "<p><em>a</em> b</p>\n",
		"[a](//example.com)":                      "<p>a</p>\n",
		"[a](\\\\example.com)":                    `<p><a href="%5Cexample.com">a</a></p>` + "\n",
		"<javascript:alert(1)>":                   "<p>javascript:alert(1)</p>\n",
		"![a](https://example.com/x.png)":         "<p>a</p>\n",
		"![a](data:image/png;base64,AAAA)":        "<p>a</p>\n",
		"![a](x.png) ![b](/events?at=0&on=x)":     "<p>a b</p>\n",
		"<img src=x onerror=alert(1)> <b>b</b>":   "<p>&lt;img src=x onerror=alert(1)&gt; &lt;b&gt;b&lt;/b&gt;</p>\n",
		"<script>alert(1)</script>":               `<pre tabindex="0"><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>` + "\n",
		"    <pre>":                               `<pre tabindex="0"><code>&lt;pre&gt;` + "\n</code></pre>\n",
		"[![a](//x/y.png)](javascript:b) c":       "<p>a c</p>\n",
		"<!-- a\n-->":                             `<pre tabindex="0"><code>&lt;!-- a` + "\n--&gt;</code></pre>\n",
		"[a][b]\n\n[b]: vbscript:x":               "<p>a</p>\n",
		"[a](https://example.com \"<b> ' \\\"\")": `<p><a href="https://example.com" title="&lt;b&gt; ' &quot;" rel="noopener noreferrer">a</a></p>` + "\n",
	} {
		testkit.Equal(t, string(markdown([]byte(in))), want, "%q", in)
	}
}
