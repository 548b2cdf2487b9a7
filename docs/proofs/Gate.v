(** The gate and the meter's bookkeeping: exact pages with recomputed weights (7.1), merging over splits (9.1), a bound
    from the mass of the tail (8), blockwise sums, and two formulas that look right and are not. *)

From Coq Require Import Reals List Lra Lia Psatz.
From Assay Require Import Sums Softmax Box.
Import ListNotations.
Open Scope R_scope.

(** * Pages read exactly (7.1) *)

Section PageIn.
Context {I : Type}.
Implicit Types (l : list I) (a ah c : I -> R) (J : I -> bool).

(** Logits and radii after the tokens of [J] have been read from the backing store: exact there, served elsewhere. *)
Definition mixed J a ah t : R := if J t then a t else ah t.
Definition zeroed J c t : R := if J t then 0 else c t.

Theorem page_in_radius l a ah c J : radius l a ah c -> radius l a (mixed J a ah) (zeroed J c).
Proof.
  intros H t Ht. unfold mixed, zeroed. destruct (J t); [|now apply H].
  rewrite Rminus_eq_0, Rabs_R0. lra.
Qed.

(** With the weights recomputed from the mixed logits every bound holds with the accumulators of those weights. *)
Theorem page_in_sound l a ah c J C :
  l <> [] -> radius l a ah c -> 0 <= C -> (forall t, In t l -> J t = false -> c t <= C) ->
  let p' := softmax l (mixed J a ah) in
  let c' := zeroed J c in
  let A' := Aplus l p' c' in
  TV l (softmax l a) p' <= (A'^2 - 1) / 2 /\
  TV l (softmax l a) p' <= (A' / Aminus l p' c' - Aminus l p' c' / A') / 2 /\
  TV l (softmax l a) p' <= tanh (C / 2) /\
  TV l (softmax l a) p' <= TVstar l p' c' /\
  TV l (softmax l a) p' <= F A' C /\
  TV l (softmax l a) p' <= G A' C (sigma l p' c') /\
  (A' <= 2 -> TV l (softmax l a) p' <= 1 - 1 / A').
Proof.
  intros Hl Hr HC0 HC p' c' A'. pose proof (page_in_radius l a ah c J Hr) as Hr'.
  assert (HC' : forall t, In t l -> zeroed J c t <= C).
  { intros t Ht. unfold zeroed. destruct (J t) eqn:E; [assumption|now apply HC]. }
  repeat split.
  - now apply e_form.
  - now apply two_sided.
  - now apply tanh_half with (c := c').
  - now apply TV_le_TVstar.
  - now apply TV_le_F.
  - now apply TV_le_G.
  - intros H2. now apply one_minus_inv_A.
Qed.

(** 8: with the tokens of [J] exact, A is at most 1 + th (e^C - 1) for a tail of mass th. *)
Theorem tail_A l ph c J C :
  weights l ph -> (forall t, In t l -> J t = false -> c t <= C) ->
  Aplus l ph (zeroed J c) <= 1 + mass l ph (fun t => negb (J t)) * (exp C - 1).
Proof.
  intros [Hw H1] HC. rewrite <- H1. unfold Aplus, mass. rewrite <- Sum_scal_r, <- Sum_plus.
  apply Sum_le. intros t Ht. unfold zeroed. specialize (Hw t Ht). specialize (HC t Ht).
  destruct (J t); simpl; [rewrite exp_0; lra|]. specialize (HC eq_refl).
  assert (exp (c t) <= exp C) by (destruct HC as [H| ->]; [left; now apply exp_increasing|lra]).
  nra.
Qed.

Theorem tail_bound l a ah c J C th :
  l <> [] -> radius l a ah c -> 0 <= C -> (forall t, In t l -> J t = false -> c t <= C) ->
  mass l (softmax l (mixed J a ah)) (fun t => negb (J t)) <= th -> th <= 1 ->
  TV l (softmax l a) (softmax l (mixed J a ah)) <= F (1 + th * (exp C - 1)) C.
Proof.
  intros Hl Hr HC0 HC Hth Hth1. set (p' := softmax l (mixed J a ah)) in *.
  assert (Hw : weights l p') by now apply softmax_weights.
  destruct (page_in_sound l a ah c J C Hl Hr HC0 HC) as (_ & _ & _ & _ & H & _).
  fold p' in H. apply Rle_trans with (1 := H).
  pose proof (exp_ge_1 C HC0) as HE.
  assert (HA : Aplus l p' (zeroed J c) <= 1 + th * (exp C - 1)).
  { apply Rle_trans with (1 := tail_A l p' c J C Hw HC). apply Rplus_le_compat_l, Rmult_le_compat_r; lra. }
  apply F_mono.
  - apply Aplus_ge_1; [assumption|].
    apply (radius_nonneg l (fun t => mixed J a ah t - a t)). exact (page_in_radius l a ah c J Hr).
  - apply Aplus_le_exp; [assumption|]. intros t Ht. unfold zeroed. destruct (J t) eqn:E; [assumption|now apply HC].
  - assumption.
  - nra.
  - lra.
Qed.

End PageIn.

(** * Zeroing radii under the old weights is unsound

    Two pages of mass one half, radii 1 and 1/1000, errors 1 and 0.  Reading the first page exactly and keeping the old
    weights reports less than 0.0006 (even by the largest bound, the e-form), where the truth is above 0.23. *)

Lemma exp_double v w y : 0 <= v -> v <= exp y -> w <= v * v -> w <= exp (y + y).
Proof.
  intros H0 Hv Hw. rewrite exp_plus. apply Rle_trans with (1 := Hw). apply Rmult_le_compat; assumption.
Qed.

Lemma exp_1_lower : 2.704 <= exp 1.
Proof.
  pose proof (exp_ineq1_le (1 / 256)) as K0.
  assert (K1 : 1.007827 <= exp (1 / 256 + 1 / 256)) by (apply (exp_double (1 + 1 / 256)); lra).
  replace (1 / 256 + 1 / 256) with (1 / 128) in K1 by field.
  assert (K2 : 1.015715 <= exp (1 / 128 + 1 / 128)) by (apply (exp_double 1.007827); lra).
  replace (1 / 128 + 1 / 128) with (1 / 64) in K2 by field.
  assert (K3 : 1.031676 <= exp (1 / 64 + 1 / 64)) by (apply (exp_double 1.015715); lra).
  replace (1 / 64 + 1 / 64) with (1 / 32) in K3 by field.
  assert (K4 : 1.064355 <= exp (1 / 32 + 1 / 32)) by (apply (exp_double 1.031676); lra).
  replace (1 / 32 + 1 / 32) with (1 / 16) in K4 by field.
  assert (K5 : 1.13285 <= exp (1 / 16 + 1 / 16)) by (apply (exp_double 1.064355); lra).
  replace (1 / 16 + 1 / 16) with (1 / 8) in K5 by field.
  assert (K6 : 1.28334 <= exp (1 / 8 + 1 / 8)) by (apply (exp_double 1.13285); lra).
  replace (1 / 8 + 1 / 8) with (1 / 4) in K6 by field.
  assert (K7 : 1.64696 <= exp (1 / 4 + 1 / 4)) by (apply (exp_double 1.28334); lra).
  replace (1 / 4 + 1 / 4) with (1 / 2) in K7 by field.
  replace 1 with (1 / 2 + 1 / 2) at 1 by lra. apply (exp_double 1.64696); lra.
Qed.

Section OldWeights.

(** The page read exactly is [true]. *)
Let l := [true; false].
Let ph (_ : bool) := 1 / 2.
Let c (b : bool) := if b then 1 else 1 / 1000.
Let e (b : bool) := if b then 1 else 0.
Let J (b : bool) := b.

Theorem old_weights_unsound :
  weights l ph /\ (forall t, In t l -> Rabs (e t) <= c t) /\
  ((Aplus l ph (zeroed J c))^2 - 1) / 2 < 0.0006 /\ 0.23 < TV l (tilt l ph e) ph.
Proof.
  repeat split.
  - intros t _. unfold ph. lra.
  - unfold l, ph. simpl. lra.
  - intros t _. unfold e, c. destruct t; [rewrite Rabs_R1|rewrite Rabs_R0]; lra.
  - assert (K : exp (1 / 1000) <= 1000 / 999).
    { pose proof (exp_ineq1_le (- (1 / 1000))) as K. rewrite exp_Ropp in K. pose proof (exp_pos (1 / 1000)) as P.
      apply Rmult_le_reg_l with (/ exp (1 / 1000)); [now apply Rinv_0_lt_compat|].
      rewrite Rinv_l by lra. apply Rle_trans with ((1 + - (1 / 1000)) * (1000 / 999)); [lra|].
      apply Rmult_le_compat_r; lra. }
    unfold Aplus, zeroed, l, ph, c, J. simpl. rewrite exp_0. pose proof (exp_pos (1 / 1000)). 
    set (u := exp (1 / 1000)) in *.
    assert (1 / 2 * 1 + (1 / 2 * u + 0) <= 1.0006) by lra.
    assert (0 <= 1 / 2 * 1 + (1 / 2 * u + 0)) by lra.
    set (A := 1 / 2 * 1 + (1 / 2 * u + 0)) in *.
    assert (A <= 1.00050051) by (unfold A; lra).
    assert (A * (A * 1) <= 1.00050051 * 1.00050051) by nra. lra.
  - unfold TV, tilt, l, ph, e. simpl. rewrite Ropp_0, exp_0, exp_Ropp. pose proof exp_1_lower as K.
    set (u := exp 1) in *.
    assert (H0 : 0 < (u - 1) / (2 * (u + 1))) by (apply Rdiv_lt_0_compat; lra).
    replace (1 / 2 * / u / (1 / 2 * / u + (1 / 2 * 1 + 0)) - 1 / 2) with (- ((u - 1) / (2 * (u + 1)))) by (field; lra).
    replace (1 / 2 * 1 / (1 / 2 * / u + (1 / 2 * 1 + 0)) - 1 / 2) with ((u - 1) / (2 * (u + 1))) by (field; lra).
    rewrite Rabs_Ropp, Rabs_pos_eq by lra.
    assert (0.23 * (2 * (u + 1)) < u - 1) by lra.
    assert (0.23 < (u - 1) / (2 * (u + 1))).
    { apply Rmult_lt_reg_r with (2 * (u + 1)); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    lra.
Qed.

End OldWeights.

(** * Merging over splits (9.1) *)

Section Splits.
Context {I : Type}.
Implicit Types (a g c : I -> R).

(** A split is a list of tokens with the reference its exponentials were taken against, usually its largest logit. *)
Definition sp_l a (s : list I * R) : R := Sum (fst s) (fun t => exp (a t - snd s)).
Definition sp_mean a g (s : list I * R) : R := Sum (fst s) (fun t => exp (a t - snd s) * g t) / sp_l a s.
Definition sp_total a (m : R) (ss : list (list I * R)) : R := Sum ss (fun s => sp_l a s * exp (snd s - m)).
Definition sp_weight a (m : R) (ss : list (list I * R)) (s : list I * R) : R :=
  sp_l a s * exp (snd s - m) / sp_total a m ss.

(** The mean over the whole row, whatever the references and the common one. *)
Theorem merge_splits a g m (ss : list (list I * R)) :
  ss <> [] -> (forall s, In s ss -> fst s <> []) ->
  let l := concat (map fst ss) in
  Sum l (fun t => softmax l a t * g t) = Sum ss (fun s => sp_weight a m ss s * sp_mean a g s).
Proof.
  intros Hss Hne l.
  assert (Hl : l <> []).
  { unfold l. destruct ss as [|s ss]; [congruence|]. simpl. specialize (Hne s (or_introl eq_refl)).
    destruct (fst s); [congruence|discriminate]. }
  pose proof (Sum_exp_pos l a Hl) as HZ. set (Z := Sum l (fun s => exp (a s))) in *.
  assert (K : forall (f : I -> R), Sum l f = Sum ss (fun s => Sum (fst s) f)).
  { intros f. unfold l. rewrite Sum_concat, Sum_map. reflexivity. }
  assert (HL : forall s, In s ss -> 0 < sp_l a s).
  { intros s Hs. apply (Sum_exp_pos (fst s) (fun t => a t - snd s)). now apply Hne. }
  assert (R1 : forall s f, In s ss -> Sum (fst s) (fun t => exp (a t - snd s) * f t) * exp (snd s - m)
     = exp (- m) * Sum (fst s) (fun t => exp (a t) * f t)).
  { intros s f _. rewrite <- Sum_scal_r, <- Sum_scal. apply Sum_ext. intros t _.
    replace (exp (a t - snd s) * f t * exp (snd s - m)) with ((exp (a t - snd s) * exp (snd s - m)) * f t) by ring.
    rewrite <- exp_plus. replace (a t - snd s + (snd s - m)) with (- m + a t) by ring. rewrite exp_plus. ring. }
  assert (HT : sp_total a m ss = exp (- m) * Z).
  { unfold sp_total, Z. rewrite K, <- Sum_scal. apply Sum_ext. intros s Hs. specialize (R1 s (fun _ => 1) Hs).
    rewrite (Sum_ext (fst s) _ (fun t => exp (a t - snd s))) in R1 by (intros; ring).
    rewrite (Sum_ext (fst s) (fun t => exp (a t) * 1) (fun t => exp (a t))) in R1 by (intros; ring). exact R1. }
  pose proof (exp_pos (- m)) as Hm.
  rewrite K. apply Sum_ext. intros s Hs. unfold sp_weight, sp_mean. rewrite HT.
  specialize (HL s Hs). specialize (R1 s g Hs).
  replace (sp_l a s * exp (snd s - m) / (exp (- m) * Z) * (Sum (fst s) (fun t => exp (a t - snd s) * g t) / sp_l a s))
    with (Sum (fst s) (fun t => exp (a t - snd s) * g t) * exp (snd s - m) / (exp (- m) * Z)) by (field; lra).
  rewrite R1. unfold softmax. fold Z.
  replace (exp (- m) * Sum (fst s) (fun t => exp (a t) * g t) / (exp (- m) * Z))
    with (Sum (fst s) (fun t => exp (a t) * g t) / Z) by (field; lra).
  rewrite <- Sum_div. apply Sum_ext. intros t _. field. lra.
Qed.

(** The accumulators A and E[(u - 1)^k] are such means. *)
Corollary merge_A a c m (ss : list (list I * R)) :
  ss <> [] -> (forall s, In s ss -> fst s <> []) ->
  let l := concat (map fst ss) in
  Aplus l (softmax l a) c = Sum ss (fun s => sp_weight a m ss s * sp_mean a (fun t => exp (c t)) s).
Proof. intros H1 H2. exact (merge_splits a (fun t => exp (c t)) m ss H1 H2). Qed.

(** The largest radius is the largest over the splits. *)
Theorem merge_C c (cs : list I -> R) (ls : list (list I)) :
  (forall s t, In s ls -> In t s -> c t <= cs s) ->
  forall t, In t (concat ls) -> c t <= fold_right (fun s r => Rmax (cs s) r) 0 ls.
Proof.
  induction ls as [|s ls IH]; simpl; intros H t Ht; [easy|].
  rewrite in_app_iff in Ht. destruct Ht as [Ht|Ht].
  - apply Rle_trans with (cs s); [apply H; auto|apply Rmax_l].
  - apply Rle_trans with (2 := Rmax_r _ _). apply IH; [|assumption]. intros; apply H; auto.
Qed.

(** sigma^2 from the two accumulators of the kernel, B1 = E[u - 1] and B2 = E[(u - 1)^2]. *)
Theorem sigma_from_B (l : list I) ph c :
  weights l ph ->
  let B1 := Sum l (fun t => ph t * (exp (c t) - 1)) in
  let B2 := Sum l (fun t => ph t * (exp (c t) - 1)^2) in
  Aplus l ph c = 1 + B1 /\ sigma l ph c = sqrt (B2 - B1^2).
Proof.
  intros [_ H1] B1 B2.
  assert (EA : Aplus l ph c = 1 + B1).
  { unfold B1, Aplus. rewrite <- H1 at 1. rewrite <- Sum_plus. apply Sum_ext. intros; ring. }
  split; [exact EA|]. unfold sigma. rewrite EA. f_equal.
  assert (E2 : Sum l (fun t => ph t * (exp (c t))^2) = B2 + 2 * B1 + 1).
  { transitivity (B2 + 2 * B1 + Sum l ph); [|now rewrite H1]. unfold B1, B2. rewrite <- Sum_scal, <- !Sum_plus. apply Sum_ext. intros; ring. }
  rewrite E2. ring.
Qed.

End Splits.

(** * Blockwise equals per token *)

Section Blocks.
Context {I B : Type} (eqb : forall a b : B, {a = b} + {a <> b}).

Theorem blockwise_eq_per_token (l : list I) (bs : list B) (p : I -> R) (blk : I -> B) (w : B -> R) :
  NoDup bs -> (forall t, In t l -> In (blk t) bs) ->
  Sum bs (fun b => w b * Sum l (fun t => if eqb (blk t) b then p t else 0)) = Sum l (fun t => p t * w (blk t)).
Proof.
  intros Hn H. rewrite <- (Sum_group eqb l bs blk (fun t => p t * w (blk t)) Hn H).
  apply Sum_ext. intros b _. rewrite <- Sum_scal. apply Sum_ext. intros t _.
  destruct (eqb (blk t) b) as [<-|]; ring.
Qed.

End Blocks.

(** * The rejected dispersion formula *)

Definition rejected {I} (l : list I) (ph c : I -> R) (cmax : R) : R :=
  let cbar := Sum l (fun t => ph t * c t) in
  1 / 2 * exp (2 * cmax) * (Sum l (fun t => ph t * Rabs (c t - cbar)) + cbar * (exp cmax - 1)).

Section Rejected.

Let l := [true; false].
Let ph (_ : bool) := 1 / 2.
Let c (_ : bool) := 1 / 10.
Let e (b : bool) := if b then 1 / 10 else - (1 / 10).

Theorem rejected_refuted :
  weights l ph /\ (forall t, In t l -> Rabs (e t) <= c t) /\ (forall t, In t l -> c t <= 1 / 10) /\
  rejected l ph c (1 / 10) < 0.0065 /\ 0.049 < TV l (tilt l ph e) ph.
Proof.
  destruct whole_pages_unsound as (W & R & _ & T & L).
  repeat split; try apply W.
  - intros t Ht. exact (R t Ht).
  - intros t _. unfold c. lra.
  - unfold rejected, l, ph, c. simpl.
    replace (1 / 2 * (1 / 10) + (1 / 2 * (1 / 10) + 0)) with (1 / 10) by lra.
    rewrite Rminus_eq_0, Rabs_R0.
    replace (2 * (1 / 10)) with (1 / 10 + 1 / 10) by lra. rewrite exp_plus.
    pose proof (exp_ge_pow 7 (- (1 / 10))) as K. simpl in K. specialize (K ltac:(lra)).
    assert (K' : 0.9042 <= exp (- (1 / 10))) by lra. clear K.
    rewrite exp_Ropp in K'. pose proof (exp_pos (1 / 10)) as P.
    assert (U : exp (1 / 10) <= 1.106).
    { apply Rmult_le_reg_l with (/ exp (1 / 10)); [now apply Rinv_0_lt_compat|].
      rewrite Rinv_l by lra. apply Rle_trans with (0.9042 * 1.106); [lra|]. apply Rmult_le_compat_r; lra. }
    pose proof (exp_ineq1_le (1 / 10)).
    set (u := exp (1 / 10)) in *.
    assert (u * u <= 1.106 * 1.106) by (apply Rmult_le_compat; lra).
    assert (u * u * (u - 1) <= 1.106 * 1.106 * (1.106 - 1)) by (apply Rmult_le_compat; nra). nra.
  - fold l ph e in T. change (0.049 < TV l (tilt l ph e) ph). rewrite T. exact L.
Qed.

(** So no theorem of that form exists. *)
Corollary rejected_not_a_bound :
  ~ (forall (l : list bool) (ph c e : bool -> R) (cmax : R),
       weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) -> (forall t, In t l -> c t <= cmax) ->
       TV l (tilt l ph e) ph <= rejected l ph c cmax).
Proof.
  intros H. destruct rejected_refuted as (W & R & M & U & L).
  specialize (H l ph c e (1 / 10) W R M). lra.
Qed.

End Rejected.
