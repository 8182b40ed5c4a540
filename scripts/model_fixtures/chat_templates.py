#!/usr/bin/env python3
"""Chat templates as transformers renders them: crates/models/tests/fixtures/chat_templates.json.

    .venv/bin/python scripts/model_fixtures/chat_templates.py
"""
import json

import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

from common import FIXTURES

# Dictionaries are in alphabetical order, as the test reads them.
VARIABLES = json.loads(json.dumps({
    "messages": [{"content": " Hi <b>&'\"é ", "role": "user"}, {"content": "ho\nho", "role": "assistant"}],
    "tools": None, "documents": None, "add_generation_prompt": True, "eos_token": "</s>", "n": 3, "f": 2.5, "xs": [3, 1, 2], "words": ["b", "A", "c"],
    "d": {"b": 1, "a": [1, 2.5, None, True], "items": "I"}, "s": "Hello World", "neg": -7, "big": 12345678901234567890,
    "tool": {"type": "function", "function": {"name": "f<x>", "parameters": {
        "type": "object", "properties": {"z": {"type": "string"}, "a": {"type": ["int", "null"]}}, "required": ["z"]}}}}, sort_keys=True))

# Expressions, one a line.
EXPRESSIONS = r'''
messages
none ~ true ~ false ~ 1.0 ~ 'x'
tools is not none
documents is none
bos_token
bos_token is defined
missing.x
missing|length
missing ~ 'a'
missing + 'a'
tool|tojson
tool|tojson(indent=2)
tool|tojson(indent=4, ensure_ascii=True)
messages|tojson
'é<&>'|tojson(ensure_ascii=true)
tool|tojson(separators=(',',':'))
tool|tojson(sort_keys=True)
d['items']
d.items()|list
d.a
d['zz']
d.zz is undefined
'%s and %d' % ('a', 3)
'%s' % s
'%05.2f|%-6s|%6s|%+d|%x|%o|%e|%g' % (f, 'ab', 'cd', 5, 255, 8, 12345.678, 0.0001)
'%(a)s-%(b)03d' % {'a': 1, 'b': 2}
'%%' % ()
'%r' % s
7 % 3
neg % 3
neg // 2
7 / 2
2 ** 10
2 ** -1
-2 ** 2
1 / 0
s.rsplit('o', 1)
s.rsplit()
s.split()
' a  b c '.split(None, 1)
' a  b c '.rsplit(None, 1)
s.partition(' ')
s.rpartition('o')
s.partition('zz')
s.split('l', 1)
s.strip('Hd')
s.title() ~ s.upper() ~ s.lower() ~ s.swapcase() ~ s.capitalize()
s.replace('l', 'L', 1)
s.find('o') ~ s.rfind('o') ~ s.count('o') ~ s.count('')
s.startswith('He') and s.endswith(('x', 'ld'))
s.zfill(15) ~ s.center(20, '*') ~ s.ljust(14) ~ '|' ~ s.rjust(14)
s.removeprefix('Hello ').removesuffix('ld')
'a\nb\r\nc'.splitlines()
'a\nb'.splitlines(True)
'-'.join(words)
'{} {1}'.format(1)
'{0} {x!r} {y:>5}'.format(s, x='q', y=3)
'{:.3f} {:,} {:05d} {:x}'.format(f, 1234567, 42, 255)
xs|sort
xs|sort(reverse=true)|join(', ')
words|sort
words|sort(case_sensitive=true)
xs|max ~ xs|min ~ xs|sum
xs|first ~ xs|last ~ xs|length
xs|reverse|list
s|reverse
s[1:4] ~ s[::-1] ~ s[-3:] ~ s[:2] ~ s[::2]
xs[::-1]
xs[1:]
xs[-1]
xs[10]
xs.0
words|map('upper')|list
messages|map(attribute='role')|join('|')
messages|selectattr('role', 'equalto', 'user')|list|length
messages|rejectattr('role', 'eq', 'user')|map(attribute='content')|list
[1,2,3,4]|select('even')|list
[1,0,2]|select|list
[1,0,2]|reject('odd')|list
xs|batch(2)|list
xs|batch(2, 0)|list
[1,2,3,4,5,6,7]|slice(3)|list
[1,2,3,4,5,6,7]|slice(3, 'x')|list
d|dictsort
d|items|list
'x'|default('y') ~ missing|default('z') ~ ''|default('w', true)
' a '|trim ~ '|'
'xxaxx'|trim('x')
s|truncate(8)
s|truncate(8, true)
s|truncate(3, false, '')
'a\n\nb'|indent
'a\n\nb'|indent(2, true, true)
'a\nb'|indent('>')
'a b'|title ~ 'fOO bar-baz'|title
'it''s'|title
"it's"|title
"it's".title()
42.5|round ~ ' ' ~ 43.5|round ~ ' ' ~ 2.675|round(2) ~ ' ' ~ 5|round ~ ' ' ~ 2.1|round(0,'ceil')
'12'|int + '0x1'|int(0,16) + 'z'|int(5)
'1.5'|float ~ 'z'|float ~ 3|float
'3.7'|int
1e20 ~ ' ' ~ 1e-5 ~ ' ' ~ 0.1 ~ ' ' ~ 1e16 ~ ' ' ~ 123456789012345.0 ~ ' ' ~ -0.0
big
[1, 'a', "it's", 'q"', none, true, 1.5, (1,), (), {'k': [1]}]
'a' in s
'World' in s and 'x' not in s
'role' in messages[0]
3 in xs
1 < 2 < 3
1 < 2 > 5
'a' < 'b'
[1,2] < [1,3]
1 == 1.0 == true
'1' == 1
not true and false
true and 'x'
false or 'y'
'x' if false
'x' if false else 'y'
none.x
none.x.y
n is divisibleby 3
n is odd
n is even
'a' is string
xs is iterable
xs is sequence
s is sequence
d is mapping
n is number
n is integer
true is integer
f is float
none is none
n is not none
n in [1,2,3]
n is in [1,2,3]
'ABC' is upper
'x' is sameas 'x'
n is eq 3
n is gt 2
namespace(a=1).a
range(5)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(0)|list
dict(a=1, b=2)
dict({'x': 1}, y=2)
{'a': 1, 'a': 2}
{'a': 1}.get('b', 'zz') ~ {'a': 1}.get('b')
d.keys()|list
d.values()|list
xs.index(2) ~ xs.count(1)
xs.append(4)
d.update({'q': 1})
xs + [4]
xs * 2
'ab' * 3
(1,2) + (3,)
'a' 'b'
'tab\t\x41\u00e9\101'
"\n"|tojson
'\d'
'a'|upper|lower
s|length > 5
(s|length) + 1
-n|abs
-1|abs
n|string ~ 'x'
s|list
s|wordcount
s|replace('o', '0')|replace('l', '1', 1)
s|urlencode ~ 'a b/ü'|urlencode
'<a href="x">\'&'|escape
[{'n':'b','v':2},{'n':'a','v':1}]|sort(attribute='n')|map(attribute='v')|list
[{'g':1,'v':2},{'g':2,'v':1},{'g':1,'v':3}]|groupby('g')|length
[1,1,2,'a','A']|unique|list
'%s' % none
'%d' % true
'%s %s' % ('a',)
'%s' % ('a','b')
'abc' % 1
[1,2,3][0:2]|join
'a' ~ 1 + 2
1 + 2 ~ 'a'
messages[0].content.strip()
messages[0]['content']|trim
messages|last
messages[-1].role
'a'|d('b')
xs is defined
not missing
missing == missing2
missing is none
[missing]
'x' ~ [missing]
raise_exception('boom')
1 if xs else 2
s.isdigit() ~ '12'.isdigit() ~ ''.isdigit() ~ 'ab'.isalpha() ~ 'AB'.isupper() ~ 'a b'.islower() ~ ' '.isspace()
'a,b'.split(',')|map('trim')|join(';')
(1, 2, 3)
()
(1,)
[1,2,3]|join(', ', )
x.y.z
s.foo
s.foo()
missing()
xs.0.foo
{'a': {'b': 'c'}}.a.b
{'get': 1}['get']
'a' | nofilter
'a' is notest
1 + 'a'
[] + 'a'
- 'a'
xs|join(attribute='x')
3 // 0
s|center(21)
'abc'|first ~ 'abc'|last
[]|first
[]|first|default('e')
'{{ }}'
messages|length - 1
10**15
1.0
3.0 * 2
100000.0 * 10
1_000
0x1F
'a' if n == 3 else 'b' if n == 4 else 'c'
n|tojson ~ f|tojson ~ none|tojson ~ true|tojson ~ 's'|tojson
1e100|tojson
{1: 2, none: 3, true: 4}|tojson
{1: 2, none: 3}
(1,2)|tojson
missing|tojson
missing|default(none)|tojson
[1,[2,[3]]]|tojson(indent=1)
[]|tojson(indent=2) ~ {}|tojson(indent=2)
s|format
'%s!'|format(s)
'%(x)s!'|format(x=1)
's'.join(['a', 1])
none|string
none|lower
none|trim
none|length
5|length
none|list
none|join
5|upper
[1,2]|string
'a'.__class__
'' is defined
'a b  c'.split(' ')
'' .split()
''.split(',')
'abc'[5]
'abc'[-1]
xs[0:100]
xs['a']
7 // 2.0
7.5 % 2
-7.5 // 2
true + true
'b' > 'a' and 2 >= 2
1 != 2 and 'a' != none
none == false
[] == false
{} == {}
{'a':1,'b':2} == {'b':2,'a':1}
'a' == 'a' == 'a'
messages is string
messages is mapping
messages[0] is mapping
tool.function.parameters.properties.items()|list
tool.function.parameters.properties|length
tool.function.parameters.properties|dictsort|length
'A' ~ ('B' if add_generation_prompt else '') ~ 'C'
'x'.join('abc')
'ab'|join('-')
d|join(',')
d|list
d|length
d|first
'a-b_c'.split('-')[1].split('_')[0]
s.lower().replace(' ', '_').split('_')|last
s.index('W') ~ s.rindex('o')
s.index('q')
'x'.isalnum() ~ '³'.isdigit() ~ '½'.isnumeric()
'ß'.upper() ~ 'İ'.lower()
'\u00a0 a \u2003'.strip() ~ '|'
'\u00a0'|string|list
['\u00a0', '\x7f', '\u200b', '\u2028', '😀']
'😀'|tojson ~ '😀'|tojson(ensure_ascii=true)
'\x7f\x01'|tojson
x if x is defined else 'no'
n is defined and n > 2
n is not defined or n > 2
(n is defined) == true
s is not string
xs is not iterable
'a' not in 'b'
not 'a' in 'b'
not n == 3
- - 3
+3
2 * -3
2 ** 3 ** 2
1 - 1 - 1
8 / 2 / 2
'a' ~ 'b' ~ 1 * 2
1 ~ 2 + 3 ~ 4
'a' 'b' ~ 'c'
'x' * 0 ~ '|'
'x' * -1 ~ '|'
xs | sort | first + 1
'a,b' . split ( ',' ) [ 0 ]
{'a': 1,}
[1, 2,]
f|int
'7'|int / 2
'a'|replace('a', '\\')
'a' is in 'abc'
3 is in [1,2]
"%s" | format(messages[0].role)
"%.3s|" | format("abcdef")
"%c" % 65
"%*d" % (5, 3)
"{:>10}|{:<10}|{:^10}|{:*^10}".format('a','b','c','d')
"{!s}".format(none)
"{a}".format(a=[1])
"{{}}".format()
"{:d}".format(3)
"{:s}".format('x')
"{:.2%}".format(0.256)
"{:+.1e}".format(12345.0)
"{:g} {:g}".format(0.00001, 100000000.0)
"{}".format(1.0)
"{}".format(true)
"{:>6}".format(true)
"{:b}".format(5)
"{:#x}".format(255)
'''.strip("\n").split("\n")

TEMPLATES = [
    "{% for m in messages %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n\nc\n\n",
    "a\r\n  {% if true %}\r\nb\rc{% endif %}\r\n",
    "  {%+ if true %}x{% endif +%}\n y",
    "{# c #}\nx{#- c -#}  \n y {# a\n b #}\nz",
    "  {# c #}x\n  {{ 1 }}\n  {#- y #}\n",
    "{% raw %}{{ x }}{% if %}{% endraw %}\nq",
    "{%- raw -%}  a {{ }} {%- endraw -%}  z",
    "  {% raw %}\n x\n  {% endraw %}\n z",
    "{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, found=false) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1, a=2) }}{{ f() }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}a{{ x }}{% endcall %}",
    "{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, z=4) }}",
    "{% macro f() %}{{ n }}{{ y }}{% endmacro %}{% set y = 7 %}{{ f() }}",
    "{% for i in range(3) %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in xs if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}",
    "{% for i in xs if i > 5 %}x{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for i in missing %}x{% endfor %}ok",
    "{% for i in none %}x{% endfor %}ok",
    "{% for i in xs %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.depth }}{% endfor %}",
    "{% for i in xs %}{% for j in xs %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x %}a{{ n }}b{% endset %}{{ x|upper }}",
    "{% set x | upper | replace('A', 'z') %}a{{ n }}b{% endset %}{{ x }}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% if n == 1 %}a{% elif n == 3 %}b{% else %}c{% endif %}",
    "{% if n %}{% set z = 5 %}{% endif %}{{ z }}",
    "{% generation %}x{{ n }}{% endgeneration %}y",
    "a\n{%- generation -%}\n x \n{%- endgeneration -%}\n b",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{% generation %}{% set w = 1 %}{% endgeneration %}{{ w }}",
    "{{ 1 }}{{- 2 -}} {{ 3 }}",
    "{{ a, b }}", "{{ 1, 2 }}", "{{ }}", "{% if %}{% endif %}", "{% for %}", "{% foo %}", "{% endif %}", "{{ 1", "{% if x %}", "{# x", "{% raw %}x", "{{ 'a }}", "{{ [1 }}", "{{ (1] }}", "{{ 1 2 }}",
    "{% break %}", "{% if true %}a{% endfor %}", "{{ x | }}", "{{ x is }}", "{{ .x }}", "{{ x. }}","{{ a b }}",
    "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}",
    "{{ raise_exception('Conversation roles must alternate') }}",
    "}} %} #} { % x",
    "{{ '}}' }}{{ \"{%\" }}",
    "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ '{' }}{{ '}' }}",
    "line1\n\n{% if true %}\n\nx\n\n{% endif %}\n\nend\n\n",
    "\n", "", "\n\n", "a", "{{ n }}\n", "\n{{ n }}\n\n",
    "{%if n%}x{%endif%}", "{{n}}{{-n-}}{{n}}",
    "{% set x = 'a' if n == 3 else 'b' %}{{ x }}",
    "{% set x = xs|sort %}{{ x }}",
    "{%- for m in messages -%}\n{{- '<|' ~ m['role'] ~ '|>\n' -}}\n{{- m['content'] + '\n' -}}\n{%- endfor -%}",
    "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' if m['role'] == 'user' else m['content'] + eos_token }}{% endfor %}",
    "{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{{ m.content }}{{ loop.index0 }}{% endfor %}",
    "{% if (messages|length > 1) and (messages[0].role != 'system') and not (tools is defined and tools) %}y{% endif %}",
    "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}",
    "{%- macro render_extra_keys(d, skip) -%}{%- for k in d -%}{%- if k not in skip -%}{{ '\n<' ~ k ~ '>' ~ d[k] ~ '</' ~ k ~ '>' }}{%- endif -%}{%- endfor -%}{%- endmacro -%}{{ render_extra_keys(d, ['a']) }}",
    "{% for i in range(3) %}{% set x = x ~ i %}{{ x }}{% endfor %}",
    "{% set x = [] %}{% for i in range(3) %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% if messages[0]['role'] == 'system' %}{% set sm = messages[0]['content'] %}{% else %}{% set sm = '' %}{% endif %}[{{ sm }}]",
    "{% for t in [tool] %}{{- t | tojson -}}{% if not loop.last %}\n{% endif %}{% endfor %}",
    "{% for m in messages %}{% for p in m.content if m.content is not string %}{{ p }}{% endfor %}{% endfor %}",
    "{% set d2 = dict(d, z=1) %}{{ d2 }}",
    "{% call f() %}{% endcall %}",
    "{% include 'x' %}", "{% extends 'x' %}",
    "{{ range(1000000)|length }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% set f = 1 %}{% macro g() %}{% set f = 2 %}{{ f }}{% endmacro %}{{ g() }}{{ f }}",
    "{% set x = namespace() %}{% set x.a = 1 %}{{ x.a }}{{ x.b }}{{ x.b is defined }}",
    "{% set x = namespace(_a=1) %}", "{% set x = namespace() %}{% set x._a = 1 %}", "{% set x = {} %}{% set x.a = 1 %}",
    "{{ (1, 2)[0] }}{{ [1,2][-1:] }}{{ 'abc'[:-1] }}{{ 'abc'[1:][0] }}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% set x = 5 -%}   \n  {{ x }}", "{{ x }}   {%- set x = 1 %}  \n y",
    "  {%- if true %}\n   a\n   {%- endif %}\n",
    "\t{% if true %}x{% endif %}\n \u00a0{% if true %}y{% endif %}",
    "x {% if true %}\n y{% endif %}", "{% if true %} \n y{% endif %}",
    "{{ 'a\\\nb' }}", "{{ 'a\nb' }}", "{{ 'x' if n else }}",
    "{{ messages | map(attribute='content') | map('trim') | map('upper') | join(' / ') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}",
    "{{ tool.function.parameters.required | default([]) | join(', ') }}",
    "{{ messages|map('tojson')|join }}", "{{ [[1,2],[3]]|map('length')|sum }}", "{{ [[1],[2]]|sum(start=[]) }}",
    "{{ xs|map('string')|join }}", "{{ ['a','b']|map('replace','a','c')|list }}",
    "{{ 'a'|map('upper')|list }}", "{{ messages|groupby('role')|map(attribute='grouper')|list }}",
    "{% for g in messages|groupby('role') %}{{ g.grouper }}:{{ g.list|length }}{% endfor %}",
    "{% set c = namespace(v=0) %}{% for i in range(3) %}{% set c.v = c.v + 1 %}{% if c.v == 2 %}{% break %}{% endif %}{% endfor %}{{ c.v }}",
]


def rendered(source):
    """The text, or None where transformers refuses the template."""
    try:
        return _compile_jinja_template(source).render(**VARIABLES)
    except Exception:
        return None


if __name__ == "__main__":
    sources = ["{{ " + expression + " }}" for expression in EXPRESSIONS] + TEMPLATES
    cases = [[source, rendered(source)] for source in sources]
    path = FIXTURES / "chat_templates.json"
    fixture = {"reference": f"transformers {transformers.__version__}", "variables": VARIABLES, "cases": cases}
    path.write_text(json.dumps(fixture, ensure_ascii=True, indent=0) + "\n")
    print(f"{path.name}: {len(cases)} cases, {sum(text is None for _, text in cases)} of them refused")
