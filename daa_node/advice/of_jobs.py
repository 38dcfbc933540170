"""What is to be done about messages on a chain, a genesis, a model and its data.

The first row that fits counts, so those of one message stand before those that fit many.
"""

from daa_node.advice.row import Row

MODEL = "The model of this job, or its code, does not fit what the genesis says, or this program"
DATA = "The data of the job are not as the job says"

JOBS: tuple[Row, ...] = (
    # The chain, read by commands
    Row(
        "holds no chain",
        "No node has run in that directory",
        "Give a node's own directory with --dir, or run its daemon first",
    ),
    Row(
        "is no height, no tag, and not",
        "That word names no vertex",
        "Give a height, a tag, or the first digits of an id: `daa-node checkpoint list` shows them",
    ),
    Row("there is no vertex", "That vertex is not here", "See `daa-node checkpoint list`"),
    Row(
        "only what is certified has a tag",
        "That vertex has no certificate here",
        "Wait until its round is final, or take another one",
    ),
    Row("cannot be a tag", "The name means a vertex already", "Take another name"),
    Row(
        "has changed meanwhile",
        "Another process writes in the directory that is read",
        "Stop the daemon of that directory, or try again",
    ),
    Row(
        "nothing was taken",
        "What was to be imported is damaged, or of another chain",
        "`daa-node checkpoint verify` says of each directory what is wrong with it",
    ),
    Row(
        "has not the weights of this model",
        "The file holds other tensors than the model has",
        "Take the file that belongs to this job: the message says what it lacks",
    ),
    Row(
        "is no safetensors file",
        "The file was cut, or is of another kind",
        "Fetch it again, and compare its digest",
    ),
    Row("has become shorter while it was read", "Somebody writes it", "Wait for that to end"),
    Row(
        "is none of the transformers library",
        "That form is for models of the transformers library",
        "Take the --format that the message names",
    ),
    Row("the nodes ended on different models", "The demo has failed", "Report it, with its logs"),
    Row(
        "the verifier failed",
        "The demo's own check has found something wrong",
        "Report it, with the directory of the demo",
    ),
    Row(
        "times without a new height; its last words",
        "A daemon of the demo ends each time that it is started",
        "Read its last words below, and ask `daa-node doctor` about its directory",
    ),
    Row("--browser: the page cannot", "The page is not whole", "Install daa-compute again"),
    Row(
        "the dashboard cannot be",
        "The page is not to be had from this daemon",
        "See in `daa-node logs` whether the API is open (api_opened, api_failed)",
    ),
    # The genesis and the job
    Row(
        "has schema version",
        "The genesis was made by another version of this program",
        "Install the version that the hosts of that network have",
    ),
    Row("one part, one node", "One node was named twice", "Name each node once"),
    Row(
        "this is not a valid node record",
        "The record was cut or changed on its way",
        "Have that node write it again: `daa-node id --record`",
    ),
    Row(
        "a node record in it is not valid",
        "The genesis was changed, or was made by another version",
        "Get genesis.json again from a host of your network",
    ),
    Row(
        "fits nobody of the body",
        "The genesis was changed after it was made",
        "Get genesis.json again from a host of your network",
    ),
    Row("this is not JSON", "The file was cut, or edited", "Get it again from where it is whole"),
    Row(
        "for a genesis",
        "The file is no genesis of this program's",
        "Get genesis.json again from a host of your network",
    ),
    Row(
        "a genesis has ... at most",
        "The file is no genesis of this program's",
        "Get genesis.json again from a host of your network",
    ),
    Row("this makes no network", "The parts do not fit together", "Mend what the message names"),
    Row("the job's model:", "The job's model is not as it should be", "Mend what it names"),
    Row(": records: ", "The records in the genesis are not whole", "Get the file again, whole"),
    Row(
        "are what this command finds out",
        "The job names what `genesis create` writes by itself",
        "Take those keys out of the job",
    ),
    Row(
        "is what this command finds out",
        "The job names what `genesis create` writes by itself",
        "Take that key out of the job",
    ),
    # What the job trains, and on what
    Row(
        "this machine cannot train that network's job",
        "The job does not run on this machine, for the cause behind the colon",
        "Mend that, or take a machine with more memory or another device",
    ),
    Row("of this job is code that", MODEL, "Read that code, then allow it, or stay out"),
    Row("the model wrote nothing", MODEL, "Take a language model, and another prompt"),
    Row("writes no text", MODEL, "Sample from a language model: this one is of another kind"),
    Row(
        "is not the one of the genesis",
        "The model that was built here is another one than the network trains. Nothing was trained",
        "Install the versions of the libraries that the other hosts have",
    ),
    Row("the model ... took longer than", MODEL, "Raise trainer.order_timeout_s, or look at load"),
    Row(
        "process for the model",
        "The process that looks at the model ended, or could not begin",
        "Look at the memory of this host (`free -h`, `dmesg`), and try again",
    ),
    Row(
        "model's base",
        "The model's base on this host is not the one that the job names",
        "Fetch it again, whole, and say in config.yaml where it lies",
    ),
    Row("the model", MODEL, "Mend what the message names, in the model's code or in the job"),
    Row("is none of ", "That word is no action", "Take one of those that the message lists"),
    Row("model.", MODEL, "Mend what the message names, in the job"),
    Row(
        "no index of safetensors files",
        "The model's base on this host is not whole",
        "Fetch it again, whole",
    ),
    Row(
        "it names ... and not its files",
        "The model's base on this host is not whole",
        "Fetch it again, whole",
    ),
    Row(
        "cannot read the file: ",
        "A file of the job's data is not where the settings say",
        "Set that key in config.yaml to the path of the file on this host",
    ),
    Row(
        "cannot be imported",
        "Python cannot load the code of this job",
        "Install what it imports, in the environment that has daa-node",
    ),
    Row("cannot be built", MODEL, "Look at the error behind the colon: it is of the job's code"),
    Row("is no Python source file", MODEL, "Name a module that is a .py file"),
    Row("has no function", MODEL, "Look at the spelling in the job, and at the file"),
    Row("has no method", MODEL, "Add it: docs/data.md and docs/models.md say what is asked for"),
    Row("not a number of examples", DATA, "Have its method give a whole number from 1"),
    Row("there is nothing to train on", DATA, "Look at the file: it is empty, or of another form"),
    Row("too few for", DATA, "Take more data, or a shorter context"),
    Row("no documents; each line", DATA, "Write one document a line, as the message shows"),
    Row("longer than", DATA, "Cut it into smaller pieces, or take another file"),
    Row("unpacks to more than", DATA, "Take a smaller file, or cut it"),
    Row("holds ... not texts", DATA, "Set data.column to a column of texts"),
    Row("no Parquet file that can be read", DATA, "Write or fetch the file again"),
    Row("they are not of each other", DATA, "Take the labels that belong to these pictures"),
    Row("are no whole number of", DATA, "Fetch the file again, or take the other kind"),
    Row("was cut or is still being written", DATA, "Wait until it is whole, or fetch it again"),
    Row("a token; 1, 2 and 4 are known", DATA, "Write the tokens in one of these widths"),
    Row("a tokenizer has ... at most", DATA, "Take another tokenizer"),
    Row("to end documents with", DATA, "Take a tokenizer with such a token"),
    Row("no tokenizer file", DATA, "Fetch the tokenizer's file again"),
    Row("cannot encode", DATA, "Take the version of the tokenizers library that the others have"),
    Row("cannot decode its tokens", DATA, "Take the tokenizer that the network was made with"),
)
