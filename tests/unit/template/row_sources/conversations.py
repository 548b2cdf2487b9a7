"""Long templates of our own in the manner of published ones, over conversations of our own."""
USER = {"role": "user", "content": "What's the weather in Łódź?"}
SYSTEM = {"role": "system", "content": "You are terse.\n"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Łódź", "days": 2, "opts": {"unit": "C", "alerts": True}}}}]}
TWO_CALLS = {"role": "assistant", "content": "Let me look.", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "A"}}}, {"function": {"name": "time", "arguments": "{\"tz\": \"CET\"}"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "{\"t\": 3.5}"}
THINK = {"role": "assistant", "content": "<think>\nrain, maybe\n</think>\n\nTake an umbrella."}
REASONED = {"role": "assistant", "content": "Yes.", "reasoning_content": "\nshort\n"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"}, {"type": "text", "text": "this."}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city: \"now\" & later", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name, e.g. Łódź"}, "days": {"type": "integer", "enum": [1, 2, 3], "default": 1}, "opts": {"type": ["object", "null"], "properties": {"unit": {"type": "string"}}}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}}]
CONVERSATIONS = [[USER], [SYSTEM, USER], [SYSTEM, USER, THINK, USER], [USER, CALL, RESULT], [SYSTEM, USER, TWO_CALLS, RESULT, RESULT, REASONED, USER], [USER, THINK], [USER, CALL, RESULT, THINK, USER, REASONED]]

THINKING = """{%- if tools %}
    {{- '<|start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "## Functions\\n<functions>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</functions><|stop|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|start|>system\\n' + messages[0].content + '<|stop|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not (message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|start|>' ~ message.role ~ '\\n' ~ content ~ '<|stop|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|start|>assistant\\n' }}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<call>{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|stop|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}{{- '<|start|>user' }}{%- endif %}
        {{- '\\n<result>\\n' ~ message.content ~ '\\n</result>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|stop|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
DATED = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|header|>system<|end|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: python\\n" }}{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|header|>user<|end|>\\n\\n' -}}
    {{- "Reply with JSON for one call.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|header|>' + message['role'] + '<|end|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|header|>assistant<|end|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header|>ipython<|end|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|end|>\\n\\n' }}{%- endif %}
"""
STRICT = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must alternate user/assistant/user/assistant/... after the optional system message") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is defined and tools is not none and message == user_messages[-1] %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {{- ", " if not loop.last else "]" }}
            {%- endfor %}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[USE] " + system_message + "\\n\\n" + message["content"] + "[/USE]" }}
        {%- else %}
            {{- "[USE] " + message["content"] + "[/USE]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 2 %}
                {{- raise_exception("Tool call IDs should be strings of length 2!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[RESULTS] {"content": ' + message.content | string + '}[/RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
"""
TYPED = """{%- macro type_of(spec) -%}
{%- if spec.type is string -%}{{ {'string': 'str', 'integer': 'int', 'number': 'float', 'object': 'dict', 'array': 'list'}[spec.type] | default('Any') }}
{%- elif spec.type is iterable -%}{%- for t in spec.type -%}{{ type_of({'type': t}) }}{{ ' | ' if not loop.last }}{%- endfor -%}
{%- else -%}Any{%- endif -%}
{%- endmacro -%}
{%- macro signature(f) -%}
def {{ f.name }}(
{%- for name, spec in f.parameters.properties.items() -%}
{{ name }}: {{ type_of(spec) }}{% if spec.default is defined %} = {{ spec.default }}{% endif %}{{ ', ' if not loop.last }}
{%- endfor -%}
){% if f.description %}:
    # {{ f.description | replace('"', "'") }}
{%- endif %}
{%- endmacro -%}
{% for tool in tools or [] %}
{{ signature(tool.function) }}
{% else %}
no tools
{% endfor %}
{% macro part(item) %}{% if item.type == 'text' %}{{ item.text }}{% elif item.type == 'image' %}<image>{% else %}{{ raise_exception('Unknown part: ' ~ item.type) }}{% endif %}{% endmacro %}
{% for m in messages %}
{% generation %}
{{ m.role | title }}: {% if m.content is string %}{{ m.content | trim }}{% elif m.content is none %}(none){% else %}{% for p in m.content %}{{ part(p) }}{% endfor %}{% endif %}

{% endgeneration %}
{% for c in m.tool_calls | default([], true) %}
  -> {{ c.function.name }}({% for k, v in c.function.arguments.items() if c.function.arguments is mapping %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})
{% endfor %}
{% endfor %}
{{ 'Assistant: ' if add_generation_prompt -}}
"""
PLAIN = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<s>default<e>\\n' }}{% endif %}{{ '<s>' + message['role'] + '\\n' + (message['content'] or '') + '<e>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}"""


def variables(messages, tools, **more):
    out = {"messages": messages, "add_generation_prompt": True, "bos_token": "<bos>", "eos_token": "<eos>", **more}
    if tools != "absent":
        out["tools"] = tools
    return out


ROWS = [(template, variables(messages, tools)) for template in (THINKING, DATED, STRICT, PLAIN) for messages in CONVERSATIONS for tools in (None, TOOLS)]
ROWS += [(TYPED, variables(messages, tools)) for messages in ([USER], [SYSTEM, PARTS], [USER, CALL, RESULT], [{"role": "user", "content": [{"type": "audio"}]}]) for tools in (None, TOOLS)]
ROWS += [(THINKING, variables([USER], TOOLS, enable_thinking=flag)) for flag in (True, False)]
ROWS += [(DATED, variables([SYSTEM, USER, CALL, RESULT], TOOLS, tools_in_user_message=False)), (DATED, variables([], TOOLS)), (DATED, variables([SYSTEM], TOOLS)), (DATED, variables([USER], "absent", date_string="1 Jan 2025")), (DATED, variables([USER, USER], "absent", custom_tools=TOOLS))]
ROWS += [(STRICT, variables([USER, USER], None)), (STRICT, variables([{"role": "narrator", "content": "x"}], None)), (STRICT, variables([SYSTEM, THINK], None)), (THINKING, variables([PARTS], None)), (PLAIN, variables([PARTS], None)), (PLAIN, variables([], None))]
