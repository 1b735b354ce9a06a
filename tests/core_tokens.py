"""Tiny tokenizers and chat templates, made in memory: what a template does to a bar needs no weights.

The vocabulary is a byte-level BPE trained on the scenario's own text, so that words are cut into pieces as
real tokenizers cut them. The templates are ChatML; each variant breaks one rule that some real one breaks.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from harness.dataset import load_scenario
from harness.statusbar.placebo import TEXTS
from harness.template import ChatTemplate

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|pad|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
# The split of GPT-4's and Qwen's tokenizers: words with a leading space, single digits, punctuation, breaks.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TOOLS = """{%- if tools -%}
{{- '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
{{- '# Tools' }}{% for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{% endfor %}{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' -%}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif -%}"""
LOOP = """{%- for message in messages -%}
{%- if loop.first and message.role == 'system' -%}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' }}
{%- REASONING -%}
{{- message.content }}
{%- for call in message.tool_calls or [] -%}
{%- if message.content or not loop.first -%}{{- '\\n' }}{%- endif -%}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor -%}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}"""
REPLY = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' }}{%- endif -%}"
CHATML = TOOLS + LOOP.replace("{%- REASONING -%}", "") + REPLY

# Reasoning survives only in assistant turns after the last user message; thinking off prefills an empty block.
THINKER = (
    "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    + TOOLS
    + LOOP.replace(
        "{%- REASONING -%}",
        "{%- if loop.index0 > ns.last and (loop.last or message.reasoning_content) -%}"
        "{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}{%- endif -%}",
    )
    + REPLY.replace(
        "{%- endif -%}",
        "{%- if enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}{%- endif -%}",
    )
)
# Consecutive user messages become one.
MERGER = CHATML.replace(
    "{%- else -%}\n{{- '<|im_start|>' + message.role",
    "{%- elif message.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' -%}"
    "{%- else -%}\n{{- '<|im_start|>' + message.role",
).replace(
    "message.content + '<|im_end|>\\n' }}\n{%- endif -%}\n{%- endfor -%}",
    "message.content }}{%- if loop.nextitem is defined and message.role == 'user' and loop.nextitem.role == 'user' -%}"
    "{{- '\\n\\n' + loop.nextitem.content }}{%- endif -%}{{- '<|im_end|>\\n' }}\n{%- endif -%}\n{%- endfor -%}",
)
UPPER = CHATML.replace(
    "message.role + '\\n' + message.content", "message.role + '\\n' + (message.content | upper)"
)
TRIMMER = CHATML.replace("message.content", "(message.content | trim)")
ALTERNATING = (
    "{%- for m in messages -%}{%- if loop.previtem is defined and loop.previtem.role == m.role == 'user' -%}"
    "{{- raise_exception('Conversation roles must alternate') -}}{%- endif -%}{%- endfor -%}" + CHATML
)
TOOLLESS = (
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}"
    + REPLY
)
# What is printed far from the bar depends on the bar.
COUNTER = "{{- 'Messages: ' ~ (messages | length) ~ '\\n' }}" + CHATML


@cache
def _trained(vocabulary: int) -> str:
    spec = load_scenario("xfinity").spec
    texts = [spec.system, spec.model_dump_json(), *(phrase for text in TEXTS for phrase in text)]
    texts += [
        "<agent_status>\nCurrent State:\n- Tool calls: 'phone_call' called 3 times (maximum reached)"
    ] * 5
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _split()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str())


def _split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def tiny_tokenizer(
    chat_template: str | None = CHATML,
    *,
    vocabulary: int = 500,
    trim_offsets: bool = False,
    special: Sequence[str] = SPECIAL,
) -> PreTrainedTokenizerFast:
    """A fresh tokenizer. `trim_offsets`: character ranges leave out the leading space, as Llama 3's do."""
    tokenizer = Tokenizer.from_str(_trained(vocabulary))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    tokenizer.decoder = decoders.ByteLevel()
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    whole.add_special_tokens({"additional_special_tokens": list(special)})
    whole.chat_template = chat_template
    return whole


def tiny_template(
    chat_template: str = CHATML, thinking: str = "off", vocabulary: int = 500, **options: bool
) -> ChatTemplate:
    tokenizer = tiny_tokenizer(chat_template, vocabulary=vocabulary)
    return ChatTemplate(tokenizer, thinking, **options)  # type: ignore[arg-type]
